//! Three functions that a page can call without any generated code: room for a message, its answer, and what a panic said.

use crate::Desk;
use std::cell::RefCell;

thread_local! {
    static DESK: RefCell<Desk> = RefCell::default();
    static MESSAGE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Makes room for a message of `len` bytes and says where it is.
#[unsafe(no_mangle)]
pub extern "C" fn room(len: usize) -> *mut u8 {
    MESSAGE.with_borrow_mut(|message| {
        *message = vec![0; len];
        message.as_mut_ptr()
    })
}

/// Answers the message in the room; returns the length of the answer, which lies where [`answer_at`] says.
#[unsafe(no_mangle)]
pub extern "C" fn answer() -> usize {
    std::panic::set_hook(Box::new(|info| {
        PANIC.with_borrow_mut(|said| *said = info.to_string());
    }));
    let question = MESSAGE.take();
    let answer = DESK.with_borrow_mut(|desk| desk.answer(&question));
    let len = answer.len();
    MESSAGE.set(answer);
    len
}

/// Where the last answer lies.
#[unsafe(no_mangle)]
pub extern "C" fn answer_at() -> *const u8 {
    MESSAGE.with_borrow(|message| message.as_ptr())
}

/// The length of what the last panic said, after which nothing else may be called.
#[unsafe(no_mangle)]
pub extern "C" fn panic_len() -> usize {
    PANIC.with_borrow(String::len)
}

/// Where that lies.
#[unsafe(no_mangle)]
pub extern "C" fn panic_at() -> *const u8 {
    PANIC.with_borrow(|said| said.as_ptr())
}
