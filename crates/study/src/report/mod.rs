//! Reports: pages that carry everything they show.
//!
//! A report is one HTML file with its pictures, charts and style inside, so it opens without a network and can be sent
//! to somebody as it is. It is built from top to bottom by small calls, each of which adds one thing:
//!
//! ```
//! use rrvq_study::report::{Chart, Report, Series};
//! let page = Report::new("Swatches")
//!     .paragraph("Five layers against one.")
//!     .table(&["model", "bits per dim"], &[["five layers", "0.02"], ["one layer", "0.81"]])
//!     .chart(&Chart {
//!         title: "Training".into(),
//!         series: vec![Series::new("five layers", vec![(0.0, 8.0), (100.0, 0.5)])],
//!         ..Chart::default()
//!     })
//!     .to_html();
//! assert!(page.contains("<td>five layers</td>"));
//! ```

mod chart;
mod heat;
pub(crate) mod layers;
mod learning;
mod raster;
pub mod runs;
mod ticks;

pub use chart::{Chart, Series};
pub use heat::{Cell, HeatMap};
pub use raster::with_rows_named;

use rrvq::error::Result;
use rrvq::files::write_atomic;
use rrvq::picture::Picture;
use std::fmt::Write;
use std::path::Path;

/// Colours, and what a chart needs, inside a page or in a file of its own.
const CHART_STYLE: &str = include_str!("chart.css");
/// The rest of a page.
const STYLE: &str = include_str!("style.css");

/// A page under construction.
#[derive(Debug, Clone, Default)]
pub struct Report {
    title: String,
    body: String,
}

/// A picture with the words that belong to it.
#[derive(Debug, Clone)]
pub struct Figure<'a> {
    /// What is seen.
    pub picture: &'a Picture,
    /// What to see in it; stands below the picture.
    pub caption: String,
    /// What it shows, for those who cannot see it.
    pub alt: String,
}

impl Report {
    /// An empty page called `title`.
    pub fn new(title: impl Into<String>) -> Report {
        Report {
            title: title.into(),
            body: String::new(),
        }
    }

    /// A heading, under which the following things stand.
    pub fn heading(self, text: &str) -> Report {
        self.add(&format!("<h2>{}</h2>", escape(text)))
    }

    /// A paragraph of plain text.
    pub fn paragraph(self, text: &str) -> Report {
        self.add(&format!("<p>{}</p>", escape(text)))
    }

    /// One picture as wide as it is, with its caption.
    pub fn figure(self, figure: &Figure) -> Result<Report> {
        let drawn = draw(figure)?;
        Ok(self.add(&drawn))
    }

    /// Pictures side by side, as many as fit in a row.
    pub fn figures_row(self, figures: &[Figure]) -> Result<Report> {
        let drawn = figures
            .iter()
            .map(draw)
            .collect::<Result<Vec<_>>>()?
            .join("\n");
        Ok(self.add(&format!("<div class=\"row\">\n{drawn}\n</div>")))
    }

    /// A chart of one or more lines.
    pub fn chart(self, chart: &Chart) -> Report {
        self.add(&chart.to_html())
    }

    /// A map of cells, whose shades are values.
    pub fn heat_map(self, map: &HeatMap) -> Report {
        self.add(&map.to_html())
    }

    /// A table; columns that hold only numbers are set to the right.
    pub fn table<R: AsRef<[C]>, C: AsRef<str>>(self, headers: &[&str], rows: &[R]) -> Report {
        self.classed_table("", headers, rows)
    }

    /// A table of sentences, whose lines are broken.
    pub fn prose_table<R: AsRef<[C]>, C: AsRef<str>>(self, headers: &[&str], rows: &[R]) -> Report {
        self.classed_table(" class=\"prose\"", headers, rows)
    }

    fn classed_table<R: AsRef<[C]>, C: AsRef<str>>(
        self,
        table_class: &str,
        headers: &[&str],
        rows: &[R],
    ) -> Report {
        let cell = |row: &R, column: usize| {
            row.as_ref()
                .get(column)
                .map(|cell| cell.as_ref().to_owned())
        };
        let numeric: Vec<bool> = (0..headers.len())
            .map(|column| {
                !rows.is_empty()
                    && rows
                        .iter()
                        .all(|row| cell(row, column).is_none_or(|c| is_number(&c)))
            })
            .collect();
        let class = |column: usize| {
            if numeric[column] {
                " class=\"number\""
            } else {
                ""
            }
        };
        let mut html =
            format!("<div class=\"wide\" tabindex=\"0\"><table{table_class}>\n<thead><tr>");
        for (column, header) in headers.iter().enumerate() {
            let _ = write!(
                html,
                "<th scope=\"col\"{}>{}</th>",
                class(column),
                escape(header)
            );
        }
        html.push_str("</tr></thead>\n<tbody>\n");
        for row in rows {
            html.push_str("<tr>");
            for column in 0..headers.len() {
                let text = cell(row, column).unwrap_or_default();
                let _ = write!(html, "<td{}>{}</td>", class(column), escape(&text));
            }
            html.push_str("</tr>\n");
        }
        html.push_str("</tbody></table></div>");
        self.add(&html)
    }

    /// The whole page.
    pub fn to_html(&self) -> String {
        let title = escape(&self.title);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <title>{title}</title>\n<style>\n{CHART_STYLE}{STYLE}</style>\n</head>\n\
             <body>\n<main>\n<h1>{title}</h1>\n{}</main>\n</body>\n</html>\n",
            self.body
        )
    }

    /// Writes the page to a file.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        write_atomic(path, |out| out.write_all(self.to_html().as_bytes()))
    }

    /// What was added so far, as HTML.
    pub(crate) fn body(&self) -> &str {
        &self.body
    }

    /// The body of another report.
    pub(crate) fn html(self, body: &str) -> Report {
        self.add(body)
    }

    fn add(mut self, html: &str) -> Report {
        self.body.push_str(html);
        self.body.push('\n');
        self
    }
}

fn draw(figure: &Figure) -> Result<String> {
    let [height, width, _] = figure.picture.shape();
    Ok(format!(
        "<figure><img src=\"{}\" width=\"{width}\" height=\"{height}\" alt=\"{}\"><figcaption>{}</figcaption></figure>",
        figure.picture.data_uri()?,
        escape(&figure.alt),
        escape(&figure.caption)
    ))
}

/// Whether a cell reads as a number: signs, a unit after it and "not known" dashes included.
fn is_number(text: &str) -> bool {
    let text = text.trim();
    let digits = text.trim_start_matches(['-', '−', '+', '±', '<', '≈', '×', ' ']);
    text.is_empty()
        || ["–", "—", "-", "−"].contains(&text)
        || digits.starts_with(|c: char| c.is_ascii_digit())
}

/// Text as HTML, inside elements and inside quoted attributes.
fn escape(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            _ => html.push(letter),
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_text_is_escaped() {
        let bad = "<script>alert('&\"')</script>";
        let picture = Picture::new([1, 1, 3], vec![0; 3]).unwrap();
        let figure = Figure {
            picture: &picture,
            caption: bad.into(),
            alt: bad.into(),
        };
        let chart = Chart {
            title: bad.into(),
            x_label: bad.into(),
            y_label: bad.into(),
            series: vec![Series::new(bad, vec![(0.0, 1.0)])],
            ..Chart::default()
        };
        let page = Report::new(bad)
            .heading(bad)
            .paragraph(bad)
            .table(&[bad], &[[bad]])
            .chart(&chart)
            .figures_row(&[figure.clone(), figure])
            .unwrap()
            .to_html();
        assert!(!page.contains("<script"));
        assert!(!page.contains("alert('"));
        assert!(page.matches("&lt;script&gt;").count() >= 11);
    }

    #[test]
    fn a_page_asks_for_nothing_outside() {
        let scratch = tempfile::tempdir().unwrap();
        let picture = Picture::new([1, 1, 3], vec![0; 3]).unwrap();
        let figure = Figure {
            picture: &picture,
            caption: "dot".into(),
            alt: "a black dot".into(),
        };
        let report = Report::new("Page")
            .figure(&figure)
            .unwrap()
            .chart(&Chart::default());
        report.write(scratch.path().join("report.html")).unwrap();
        let page = std::fs::read_to_string(scratch.path().join("report.html")).unwrap();
        assert!(!page.contains("http") && !page.contains("url(") && !page.contains("@import"));
        assert!(
            page.contains("src=\"data:image/png;base64,")
                && page.contains("image-rendering: pixelated")
        );
    }

    #[test]
    fn number_columns_are_set_right_and_short_rows_are_filled() {
        let rows = [vec!["a", "1.5"], vec!["b", "–"], vec!["c"]];
        let page = Report::new("Page")
            .table(&["name", "bits"], &rows)
            .to_html();
        assert!(page.contains("<th scope=\"col\" class=\"number\">bits</th>"));
        assert!(page.contains("<th scope=\"col\">name</th>"));
        assert!(page.contains("<td>c</td><td class=\"number\"></td>"));
    }
}
