//! What a person sees: lines, bars, tables.

use crate::output::manner;
use indicatif::{ProgressBar, ProgressStyle};
use rrvq::evaluate::{EvalRecord, psnr};
use rrvq::interrupt::Interrupt;
use rrvq::programs::StepOutcome;
use rrvq::train::{Started, Watch};
use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

/// Prints a line. A reader that has gone away (`rrvq presets | head`) ends the program quietly; a result that
/// cannot be kept is an error.
pub fn line(text: impl AsRef<str>) {
    match writeln!(std::io::stdout(), "{}", text.as_ref()) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => {
            complain(rrvq::Error::io("print to", "standard output", error));
            std::process::exit(2);
        }
    }
}

/// A line that --quiet leaves out: what was done and where it is.
pub fn note(text: impl AsRef<str>) {
    if !manner().quiet {
        line(text);
    }
}

/// A line that --verbose adds, on standard error.
pub fn detail(text: impl FnOnce() -> String) {
    if manner().verbose {
        aside(text());
    }
}

/// A line on standard error, to nobody if need be.
pub fn aside(text: impl AsRef<str>) {
    let _ = writeln!(std::io::stderr(), "{}", text.as_ref());
}

/// Whether a JSON object was printed: there is never a second one.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Prints one JSON object.
pub fn json(value: &serde_json::Value) {
    TOLD.store(true, Ordering::SeqCst);
    line(value.to_string());
}

/// Prints that something failed as a JSON object, unless there was one already.
pub fn json_failure(said: &str) {
    if !TOLD.load(Ordering::SeqCst) {
        json(&serde_json::json!({ "error": said }));
    }
}

/// Says what is wrong, to nobody if need be: unlike `eprintln!`, a closed standard error is no panic.
pub fn complain(what: impl Display) {
    let _ = writeln!(std::io::stderr(), "rrvq: {what}");
}

/// Set by the first Ctrl-C; the second one ends the program at once.
static INTERRUPT: LazyLock<Interrupt> = LazyLock::new(Interrupt::default);

/// What every command runs in the scope of.
pub fn interrupt() -> &'static Interrupt {
    &INTERRUPT
}

/// How a training ends at Ctrl-C.
pub const SAVING: &str = "finishing this step and saving";
/// How everything else does.
pub const STOPPING: &str = "stopping";

/// From now on the first Ctrl-C ends the work where it can be ended: files that are being written go, trainings are saved.
/// `how` is what is said then.
pub fn watch_for_interrupts(how: &'static str) -> rrvq::Result<()> {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let handler = move || {
        let first = FIRST.get_or_init(Instant::now);
        match INTERRUPT.is_set() {
            // A launcher and the terminal may both hand on the same Ctrl-C.
            true if first.elapsed() > Duration::from_millis(500) => std::process::exit(130),
            true => {}
            false => {
                INTERRUPT.set();
                if !manner().one_of_many {
                    complain(format!("{how}; press Ctrl-C again to stop at once"));
                }
            }
        }
    };
    ctrlc::set_handler(handler)
        .map_err(|e| rrvq::Error::new(format!("cannot listen for Ctrl-C: {e}")))
}

/// Follows a training run: a line for each evaluation, and a bar where there is a terminal.
pub struct Follow {
    label: String,
    bar: ProgressBar,
    quiet: bool,
    /// Layers that were said to have run away.
    runaway: Vec<usize>,
}

impl Follow {
    pub fn new(label: &str) -> Self {
        Follow {
            label: label.into(),
            bar: ProgressBar::hidden(),
            runaway: Vec::new(),
            quiet: manner().quiet,
        }
    }

    /// A bar, but no lines.
    pub fn quiet(label: &str) -> Self {
        let mut follow = Follow::new(label);
        follow.quiet = true;
        follow
    }

    /// Says once of each layer that it is lost, when there is time to start again.
    fn warn(&mut self, record: &EvalRecord) {
        let gone = record.runaway();
        if gone.iter().all(|layer| self.runaway.contains(layer)) {
            return;
        }
        let each = |layer: &usize| format!("{} ({:.0})", layer + 1, record.embedding_size[*layer]);
        let layers: Vec<String> = gone.iter().map(each).collect();
        let (what, whose) = match layers.len() {
            1 => ("layer", "has one code left: its"),
            _ => ("layers", "have one code left: their"),
        };
        self.bar.suspend(|| {
            aside(format!(
                "{}: {what} {} {whose} embeddings (their root mean square in brackets, 1 at the start) are far from all codes, \
                 where gradients vanish; start again with train.norm_penalty=0.1, which keeps them near, or with a lower train.lr",
                self.label,
                layers.join(", ")
            ))
        });
        self.runaway = gone;
    }

    fn say(&self, text: String) {
        if !self.quiet {
            // Training is not given up because nobody reads along; the log has it all.
            let _ = self.bar.suspend(|| writeln!(std::io::stdout(), "{text}"));
        }
    }
}

impl Follow {
    /// While a data set is decoded: images done, and images in all.
    pub fn decoded(&mut self, images: usize, total: usize) {
        if self.bar.is_hidden() {
            self.bar = bar("decoding images", total);
        }
        self.bar.set_position(images as u64);
    }
}

impl Watch for Follow {
    fn started(&mut self, start: &Started) {
        let label = &self.label;
        let from = if start.from > 0 {
            format!(", going on from step {}", start.from)
        } else {
            String::new()
        };
        self.say(format!(
            "{label}: {} parameters, {:.0} MiB of memory planned, ready in {:.1} s{from}",
            grouped(start.parameters),
            start.arena_bytes as f64 / (1 << 20) as f64,
            start.seconds
        ));
        self.bar.finish_and_clear();
        // indicatif hides the bar by itself when standard error is not a terminal.
        self.bar = progress(start.steps as u64).with_position(start.from as u64);
        self.bar.reset_eta();
        let template = "{prefix} {bar:32} {pos}/{len} steps  {per_sec}  {eta} left  {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            self.bar.set_style(style);
        }
        self.bar.set_prefix(self.label.clone());
    }

    fn stepped(&mut self, step: usize, outcome: &StepOutcome) {
        self.bar.set_position(step as u64);
        if step.is_multiple_of(10) {
            self.bar
                .set_message(format!("{:.3} bits/dim", outcome.loss));
        }
    }

    fn evaluated(&mut self, record: &EvalRecord) {
        let perplexity: Vec<String> = record
            .usage
            .iter()
            .map(|u| format!("{:.0}", u.perplexity))
            .collect();
        let codes = match record.codes_in_use() {
            None => String::new(),
            Some((used, all)) => format!(
                ", codes in use {} of {}, perplexity {} (bottom to top)",
                grouped(used),
                grouped(all),
                perplexity.join(" ")
            ),
        };
        let quality = match record.squared_error {
            None => String::new(),
            Some(error) => format!(", {:.2} dB (PSNR)", psnr(error)),
        };
        self.say(format!(
            "{} step {}: {:.4} {} bits/dim ({:.4} reconstruction + {:.4} KL){quality}{codes}",
            self.label,
            record.step,
            record.bits_per_dim,
            record.split,
            record.reconstruction,
            record.kl.iter().sum::<f64>(),
        ));
        self.warn(record);
    }

    fn planned(&mut self, steps: usize) {
        self.bar.set_length(steps as u64);
    }

    fn stop(&self) -> bool {
        INTERRUPT.is_set()
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// 1234567 as 1,234,567.
pub fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Columns as wide as they need to be, numbers to the right.
pub fn table(headers: &[&str], rows: &[Vec<String>]) {
    let width = |c: usize| {
        rows.iter()
            .map(|r| r[c].chars().count())
            .chain([headers[c].chars().count()])
            .max()
    };
    let widths: Vec<usize> = (0..headers.len()).map(|c| width(c).unwrap_or(0)).collect();
    let show = |cells: Vec<&str>| {
        let padded = cells
            .iter()
            .zip(&widths)
            .map(|(cell, w)| format!("{cell:>w$}"));
        line(padded.collect::<Vec<_>>().join("  "));
    };
    show(headers.to_vec());
    for row in rows {
        show(row.iter().map(String::as_str).collect());
    }
}

/// A bar, unless --quiet.
fn progress(len: u64) -> ProgressBar {
    match manner().quiet {
        true => ProgressBar::hidden(),
        false => ProgressBar::new(len),
    }
}

/// A bar for work with a known end, hidden where there is no terminal.
pub fn bar(label: &str, len: usize) -> ProgressBar {
    let bar = progress(len as u64);
    if let Ok(style) = ProgressStyle::with_template("{prefix} {bar:32} {pos}/{len}  {eta} left") {
        bar.set_style(style);
    }
    bar.set_prefix(label.to_string());
    bar
}

/// A bar for bytes that come in.
pub fn bytes_bar(label: &str, len: u64) -> ProgressBar {
    let bar = progress(len);
    let template = "{prefix} {bar:32} {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_prefix(label.to_string());
    bar
}
