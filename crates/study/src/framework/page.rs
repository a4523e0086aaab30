//! One page of all sections that are there.

use super::{Stored, Study};
use crate::report::Report;
use rrvq::Result;
use std::path::Path;

/// The page's file in the folder of studies.
pub const PAGE: &str = "index.html";

/// Assembles the page from the sections in `out`, in the order of `studies`.
pub(super) fn write(out: &Path, studies: &[&dyn Study]) -> Result<()> {
    let mut found = Vec::new();
    for study in studies {
        found.extend(Stored::load(out, study.name())?.map(|stored| (*study, stored)));
    }
    let mut summary = Vec::new();
    for (study, stored) in &found {
        for claim in &stored.claims {
            summary.push(vec![
                study.name().to_string(),
                claim.claim.clone(),
                claim.paper.clone(),
                claim.ours.clone(),
                claim.verdict.to_string(),
            ]);
        }
    }
    let missing: Vec<&str> = studies
        .iter()
        .map(|study| study.name())
        .filter(|name| found.iter().all(|(study, _)| study.name() != *name))
        .collect();
    let mut page = Report::new("Relaxed-responsibility hierarchical discrete VAEs: the paper, measured")
        .paragraph("Each study takes one table, figure or theorem of the paper, measures it with this program, and says whether the claim holds. A verdict is of the runs on this page: their scale, seeds and minutes stand in each section.")
        .prose_table(&["study", "claim", "paper", "ours", "verdict"], &summary);
    if !missing.is_empty() {
        page = page.paragraph(&format!(
            "Not run into this folder: {}.",
            missing.join(", ")
        ));
    }
    for (study, stored) in &found {
        page = page
            .heading(&format!("{}: {}", study.name(), study.about()))
            .paragraph(&format!("In the paper: {}", study.paper()))
            .prose_table(
                &["claim", "paper", "ours", "verdict"],
                &stored
                    .claims
                    .iter()
                    .map(|c| {
                        let verdict = c.verdict.to_string();
                        vec![c.claim.clone(), c.paper.clone(), c.ours.clone(), verdict]
                    })
                    .collect::<Vec<_>>(),
            )
            .html(&stored.html)
            .paragraph(&spent(stored));
    }
    page.write(out.join(PAGE))
}

fn spent(stored: &Stored) -> String {
    let seeds = match stored.seeds {
        0 => "nothing is left to a seed".to_string(),
        1 => "one seed".to_string(),
        n => format!("{n} seeds"),
    };
    let training = match stored.training > 0.0 {
        true => format!(
            "; its runs were trained for {:.1} minutes in all, some perhaps by another study",
            stored.training
        ),
        false => String::new(),
    };
    format!(
        "Command: {}. Scale {}, {}, {seeds}, {:.1} minutes{training}.",
        stored.command, stored.scale, stored.device, stored.minutes
    )
}
