//! A study's part of the page, and its files: figures as PNG and SVG, numbers as CSV, claims with verdicts.

use super::{Scale, Settings};
use crate::report::{Chart, Figure, Report};
use rrvq::files::write_atomic;
use rrvq::picture::Picture;
use rrvq::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Measured, and so.
    Holds,
    /// Measured, and not so.
    DoesNotHold,
    /// The runs were too short, too few or too close to tell.
    NotDecided,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Holds => "holds",
            Verdict::DoesNotHold => "does not hold",
            Verdict::NotDecided => "not decided at this budget",
        })
    }
}

impl Verdict {
    /// Holds if `so`; else it does not.
    pub fn of(so: bool) -> Verdict {
        match so {
            true => Verdict::Holds,
            false => Verdict::DoesNotHold,
        }
    }

    /// Whether `less` is below `more`, where differences within `margin` decide nothing.
    pub fn below(less: f64, more: f64, margin: f64) -> Verdict {
        match more - less {
            gap if gap > margin => Verdict::Holds,
            gap if gap < -margin => Verdict::DoesNotHold,
            _ => Verdict::NotDecided,
        }
    }

    /// That of a smoke run, whose numbers mean nothing, or of models that may lack nothing but the training they were to have.
    fn at(self, scale: Scale, cut_short: bool) -> Verdict {
        match (scale, self) {
            (Scale::Smoke, _) => Verdict::NotDecided,
            (_, Verdict::DoesNotHold) if cut_short => Verdict::NotDecided,
            _ => self,
        }
    }
}

/// A sentence of the paper, its numbers, ours, and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The sentence.
    pub claim: String,
    /// The paper's number.
    pub paper: String,
    /// Ours.
    pub ours: String,
    /// Whether it holds.
    pub verdict: Verdict,
}

/// A section as it is kept, for the page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// The study.
    pub study: String,
    /// The scale it was run at.
    pub scale: String,
    /// What computed.
    pub device: String,
    /// The command.
    pub command: String,
    /// Seeds of each model; 0 where nothing is random.
    pub seeds: usize,
    /// Minutes the study took.
    pub minutes: f64,
    /// Minutes of training in its runs, those that were there already included.
    pub training: f64,
    /// What was claimed.
    pub claims: Vec<Claim>,
    /// Everything below them, as HTML.
    pub html: String,
}

const FILE: &str = "section.json";

impl Stored {
    /// The section of a study in a folder of studies, if it was run.
    pub fn load(out: &Path, study: &str) -> Result<Option<Stored>> {
        let path = out.join(study).join(FILE);
        if !path.is_file() {
            return Ok(None);
        }
        let text = std::fs::read(&path).map_err(|error| Error::io("read", &path, error))?;
        let read = serde_json::from_slice(&text);
        let stored = read.map_err(|error| {
            let shown = path.display();
            Error::new(format!(
                "{shown} is not a study's section: {error}; remove it and run the study again"
            ))
        })?;
        Ok(Some(stored))
    }
}

/// A section being written.
pub struct Section {
    name: &'static str,
    dir: PathBuf,
    report: Report,
    claims: Vec<Claim>,
    /// Seeds of each model.
    pub seeds: usize,
    /// Whether its models get less training than the scale has for them: then nothing fails to hold.
    pub(super) cut_short: bool,
}

impl Section {
    pub(super) fn begin(out: &Path, name: &'static str) -> Result<Section> {
        let dir = out.join(name);
        std::fs::create_dir_all(&dir).map_err(|error| Error::io("create", &dir, error))?;
        Ok(Section {
            name,
            dir,
            report: Report::default(),
            claims: Vec::new(),
            seeds: 0,
            cut_short: false,
        })
    }

    fn add(&mut self, what: impl FnOnce(Report) -> Report) {
        self.report = what(std::mem::take(&mut self.report));
    }

    /// A claim with the paper's number, ours, and the verdict.
    pub fn claim(&mut self, claim: &str, paper: &str, ours: impl Into<String>, verdict: Verdict) {
        self.claims.push(Claim {
            claim: claim.into(),
            paper: paper.into(),
            ours: ours.into(),
            verdict,
        });
    }

    /// A paragraph on the page.
    pub fn paragraph(&mut self, text: &str) {
        self.add(|report| report.paragraph(text));
    }

    /// A table on the page, and `NAME.csv`.
    pub fn table(&mut self, name: &str, headers: &[&str], rows: &[Vec<String>]) -> Result<()> {
        self.numbers(name, headers, rows)?;
        self.add(|report| report.table(headers, rows));
        Ok(())
    }

    /// `NAME.csv` alone.
    pub fn numbers(&self, name: &str, headers: &[&str], rows: &[Vec<String>]) -> Result<()> {
        let headers: Vec<String> = headers.iter().map(|h| h.to_string()).collect();
        let lines = std::iter::once(&headers).chain(rows).map(|row| csv(row));
        let text: String = lines.collect();
        self.write(&format!("{name}.csv"), text.as_bytes())
    }

    /// A chart on the page, `NAME.svg` and `NAME.png`.
    pub fn chart(&mut self, name: &str, chart: &Chart) -> Result<()> {
        self.write(&format!("{name}.svg"), chart.to_svg().as_bytes())?;
        chart
            .to_picture()?
            .save(self.dir.join(format!("{name}.png")))?;
        self.add(|report| report.chart(chart));
        Ok(())
    }

    /// A picture on the page, `NAME.png` and `NAME.svg`.
    pub fn picture(&mut self, name: &str, picture: &Picture, caption: &str) -> Result<()> {
        picture.save(self.dir.join(format!("{name}.png")))?;
        let [height, width, _] = picture.shape();
        let svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\">\n\
             <image width=\"{width}\" height=\"{height}\" style=\"image-rendering: pixelated\" href=\"{}\"/>\n</svg>\n",
            picture.data_uri()?
        );
        self.write(&format!("{name}.svg"), svg.as_bytes())?;
        let figure = Figure {
            picture,
            caption: caption.into(),
            alt: caption.into(),
        };
        self.report = std::mem::take(&mut self.report).figure(&figure)?;
        Ok(())
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        write_atomic(self.dir.join(name), |file| file.write_all(bytes))
    }

    /// Keeps the section for the page.
    pub(super) fn store(
        self,
        settings: &Settings,
        command: String,
        [minutes, training]: [f64; 2],
    ) -> Result<Stored> {
        let judged = |claim: Claim| Claim {
            verdict: claim.verdict.at(settings.scale, self.cut_short),
            ..claim
        };
        let stored = Stored {
            study: self.name.into(),
            scale: settings.scale.name().into(),
            device: settings.device.name().to_string(),
            command,
            seeds: self.seeds,
            minutes,
            training,
            claims: self.claims.into_iter().map(judged).collect(),
            html: self.report.body().into(),
        };
        let text = serde_json::to_vec_pretty(&stored)
            .map_err(|error| Error::new(format!("cannot write a section as JSON: {error}")))?;
        write_atomic(self.dir.join(FILE), |file| file.write_all(&text))?;
        Ok(stored)
    }
}

/// A line of a CSV file.
fn csv(cells: &[String]) -> String {
    let cell = |cell: &String| match cell.contains([',', '"', '\n']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.clone(),
    };
    let cells: Vec<String> = cells.iter().map(cell).collect();
    format!("{}\n", cells.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_with_commas_and_quotes_are_quoted() {
        let line = csv(&["a".into(), "b, \"c\"".into()]);
        assert_eq!(line, "a,\"b, \"\"c\"\"\"\n");
    }

    #[test]
    fn differences_within_the_margin_decide_nothing() {
        assert_eq!(Verdict::below(1.0, 2.0, 0.5), Verdict::Holds);
        assert_eq!(Verdict::below(2.0, 1.0, 0.5), Verdict::DoesNotHold);
        assert_eq!(Verdict::below(1.0, 1.2, 0.5), Verdict::NotDecided);
        assert_eq!(Verdict::below(1.0, f64::NAN, 0.5), Verdict::NotDecided);
        assert_eq!(Verdict::Holds.at(Scale::Smoke, false), Verdict::NotDecided);
    }

    #[test]
    fn what_does_not_hold_after_less_training_is_not_decided() {
        use Verdict::*;
        let cut = [Holds, DoesNotHold, NotDecided].map(|verdict| verdict.at(Scale::Full, true));
        assert_eq!(cut, [Holds, NotDecided, NotDecided]);
        let whole = [Holds, DoesNotHold].map(|verdict| verdict.at(Scale::Full, false));
        assert_eq!(whole, [Holds, DoesNotHold]);
    }
}
