//! The program inside the page `web/index.html`: a model is opened once and asked many times.
//!
//! A question and an answer are bytes: the length of a JSON text (4 bytes, lowest first), the text, and whatever else
//! belongs to it (images, files). [`Desk::answer`] is the same function everywhere, so what a browser computes can be
//! compared with what this machine does; [`abi`] is all that a browser needs to call it. [`ask`] lists the questions.

#[cfg(target_arch = "wasm32")]
mod abi;
pub mod ask;
pub mod view;

use ask::Ask;
use rrvq::{Error, Result};
use serde_json::{Value, json};

/// Where questions are answered: with one model at a time.
#[derive(Default)]
pub struct Desk {
    open: Option<view::View>,
}

/// A JSON text and the bytes that go with it.
pub struct Answer {
    /// What the page reads.
    pub told: Value,
    /// Images or files.
    pub bytes: Vec<u8>,
}

impl Answer {
    fn new(told: Value, bytes: Vec<u8>) -> Answer {
        Answer { told, bytes }
    }
}

/// Text and bytes as one message.
pub fn message(text: &str, bytes: &[u8]) -> Vec<u8> {
    let mut out = (text.len() as u32).to_le_bytes().to_vec();
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(bytes);
    out
}

/// The text and the bytes of a message.
pub fn parts(message: &[u8]) -> Result<(&str, &[u8])> {
    let read = || {
        let (len, rest) = message.split_first_chunk::<4>()?;
        let (text, bytes) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        Some((std::str::from_utf8(text).ok()?, bytes))
    };
    read().ok_or_else(|| Error::new("a message is cut off; expected a length, a text and bytes"))
}

impl Desk {
    /// Answers a message. What goes wrong is an answer too: `{"error": "one sentence"}`.
    pub fn answer(&mut self, question: &[u8]) -> Vec<u8> {
        match self.try_answer(question) {
            Ok(answer) => message(&answer.told.to_string(), &answer.bytes),
            Err(error) => {
                let said = error.tell(|_| "open that model first".to_string());
                message(&json!({ "error": said }).to_string(), &[])
            }
        }
    }

    fn try_answer(&mut self, question: &[u8]) -> Result<Answer> {
        let (text, bytes) = parts(question)?;
        let ask: Ask = serde_json::from_str(text)
            .map_err(|error| Error::new(format!("a message cannot be understood: {error}")))?;
        if let Ask::Open { name } = &ask {
            let view = self.open.insert(view::View::open(bytes, name)?);
            return view.describe();
        }
        let Some(view) = &mut self.open else {
            return Err(Error::new("no model is open; open a packed model first"));
        };
        ask.answer(view, bytes)
    }
}
