//! Heat maps as SVG: one row a layer, one column a moment, the shade a value.
//!
//! Lines of 32 layers cover each other; rows of cells do not. Every cell says its value where a pointer rests on it.
//! Hand-written for the reason that charts are.

use super::escape;
use std::fmt::Write;

/// Cells in rows and columns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HeatMap {
    /// What the map shows; stands above it.
    pub title: String,
    /// What runs along the bottom.
    pub x_label: String,
    /// What stands below each column.
    pub columns: Vec<String>,
    /// Name and cells of each row, the uppermost first.
    pub rows: Vec<(String, Vec<Cell>)>,
    /// What the lightest and the darkest shade mean.
    pub scale: [String; 2],
}

/// One cell of a heat map.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cell {
    /// From 0 to 1; what is not a number is left open.
    pub shade: f64,
    /// The value in words.
    pub text: String,
}

const WIDTH: f64 = 720.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 20.0;
const ABOVE: f64 = 8.0;
const BELOW: f64 = 62.0;
/// Height of all rows, and of a single one.
const ROWS: f64 = 260.0;
const ROW: [f64; 2] = [9.0, 24.0];
/// Labels closer than this run into each other.
const LABEL_HEIGHT: f64 = 13.0;
const LABEL_WIDTH: f64 = 54.0;
/// Shades of the scale.
const SHADES: usize = 6;

impl HeatMap {
    pub(super) fn to_html(&self) -> String {
        let columns = self.columns.len().max(1);
        let width = (WIDTH - LEFT - RIGHT) / columns as f64;
        let height = (ROWS / self.rows.len().max(1) as f64).clamp(ROW[0], ROW[1]);
        let bottom = ABOVE + height * self.rows.len() as f64;
        let alt = escape(&format!("Heat map: {}.", self.title));
        let mut html = format!(
            "<figure class=\"chart\">\n<figcaption>{}</figcaption>\n\
             <svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{alt}\">\n",
            escape(&self.title),
            bottom + BELOW
        );
        let every = (LABEL_HEIGHT / height).ceil() as usize;
        for (number, (name, cells)) in self.rows.iter().enumerate() {
            let top = ABOVE + height * number as f64;
            if number.is_multiple_of(every) {
                let (left, base) = (LEFT - 8.0, top + height / 2.0 + 4.0);
                let name = escape(name);
                let _ = writeln!(
                    html,
                    "<text x=\"{left}\" y=\"{base:.1}\" class=\"end\">{name}</text>"
                );
            }
            for (column, cell) in cells.iter().enumerate() {
                let left = LEFT + width * column as f64;
                draw_cell(&mut html, [left, top, width - 1.0, height - 1.0], cell);
            }
        }
        let every = (LABEL_WIDTH / width).ceil() as usize;
        for (column, label) in self.columns.iter().enumerate().step_by(every) {
            let (middle, base) = (LEFT + width * (column as f64 + 0.5), bottom + 16.0);
            let label = escape(label);
            let _ = writeln!(
                html,
                "<text x=\"{middle:.1}\" y=\"{base:.1}\" class=\"middle\">{label}</text>"
            );
        }
        self.draw_foot(&mut html, bottom + BELOW - 12.0);
        html.push_str("</svg>\n</figure>");
        html
    }

    /// The label of the columns, and what the shades mean.
    fn draw_foot(&self, html: &mut String, base: f64) {
        let _ = writeln!(
            html,
            "<text x=\"{LEFT}\" y=\"{base:.1}\" class=\"label\">{}</text>",
            escape(&self.x_label)
        );
        let [light, dark] = self.scale.each_ref().map(|text| escape(text));
        let (size, right) = (14.0, WIDTH - RIGHT - 90.0);
        let first = right - size * SHADES as f64;
        let (before, after) = (first - 6.0, right + 5.0);
        let _ = writeln!(
            html,
            "<text x=\"{before}\" y=\"{base:.1}\" class=\"end\">{light}</text>\
             <text x=\"{after}\" y=\"{base:.1}\">{dark}</text>"
        );
        for number in 0..SHADES {
            let cell = Cell {
                shade: number as f64 / (SHADES - 1) as f64,
                text: String::new(),
            };
            let left = first + size * number as f64;
            draw_cell(html, [left, base - 10.0, size - 1.0, size - 3.0], &cell);
        }
    }
}

fn draw_cell(html: &mut String, [x, y, width, height]: [f64; 4], cell: &Cell) {
    let shade = match cell.shade.is_nan() {
        true => String::new(),
        false => format!(" fill-opacity=\"{:.3}\"", cell.shade.clamp(0.0, 1.0)),
    };
    let class = if shade.is_empty() {
        "cell open"
    } else {
        "cell"
    };
    let title = match cell.text.is_empty() {
        true => String::new(),
        false => format!("<title>{}</title>", escape(&cell.text)),
    };
    let _ = writeln!(
        html,
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"{shade}>{title}</rect>"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(rows: usize, columns: usize) -> HeatMap {
        let cell = |row: usize, column: usize| Cell {
            shade: match (row, column) {
                (0, 0) => f64::NAN,
                _ => column as f64,
            },
            text: format!("<{row} {column}>"),
        };
        HeatMap {
            title: "a < b".into(),
            x_label: "step".into(),
            columns: (0..columns).map(|c| c.to_string()).collect(),
            rows: (0..rows)
                .map(|r| {
                    (
                        format!("row {r}"),
                        (0..columns).map(|c| cell(r, c)).collect(),
                    )
                })
                .collect(),
            scale: ["none".into(), "all".into()],
        }
    }

    #[test]
    fn every_cell_has_its_shade_and_its_words() {
        let html = map(2, 3).to_html();
        assert_eq!(html.matches("<title>").count(), 6);
        assert_eq!(html.matches("<rect").count(), 6 + SHADES);
        assert!(html.contains("&lt;1 2&gt;") && html.contains("a &lt; b"));
        assert!(!html.contains("NaN") && html.contains("class=\"cell open\""));
        // Shades above one are as dark as one.
        assert_eq!(html.matches("fill-opacity=\"1.000\"").count(), 4 + 1);
    }

    #[test]
    fn labels_keep_their_distance() {
        let html = map(64, 100).to_html();
        let rows = html.matches(">row ").count();
        assert_eq!(rows, 32);
        let columns = html.matches("class=\"middle\"").count();
        assert!((8..=13).contains(&columns), "{columns}");
        assert!(map(0, 0).to_html().contains("<svg"));
    }
}
