//! Line charts as SVG: inside a page, or as a file of their own.
//!
//! Colours come from the page's style, so that one drawing serves light and dark. Lines differ in dashes as well as in
//! colour, for eyes and printers that do not tell colours apart. Hand-written, since plotting crates fix the colours when
//! they draw and bring fonts or rasterisers along.

use super::ticks::Axis;
use super::{CHART_STYLE, escape};
use std::fmt::Write;

/// A chart of one or more lines over a common axis.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Chart {
    /// What the chart shows; stands above it.
    pub title: String,
    /// What runs along the bottom.
    pub x_label: String,
    /// What runs up the side.
    pub y_label: String,
    /// Whether the bottom axis is logarithmic; points at or below zero are then left out.
    pub log_x: bool,
    /// Whether the side axis is logarithmic, likewise.
    pub log_y: bool,
    /// Whether each point has a dot: for lines through few points, which were measured one by one.
    pub dots: bool,
    /// The lines, in the order of the legend.
    pub series: Vec<Series>,
}

/// One line of a chart.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, from left to right; the line breaks where a value is not a number.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// A line called `name` through `points`.
    pub fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        Series {
            name: name.into(),
            points,
        }
    }

    /// Whether there is nothing to draw a line through.
    pub(super) fn is_a_point(&self) -> bool {
        self.points.len() == 1
    }

    /// Of its dots.
    pub(super) fn radius(&self) -> f64 {
        if self.is_a_point() { POINT } else { DOT }
    }

    /// What stands beside its name in the legend, 28 wide from a place on.
    fn sign(&self, look: usize, (left, middle): (f64, f64)) -> String {
        match self.is_a_point() {
            true => format!(
                "<circle class=\"dot look{look}\" cx=\"{}\" cy=\"{middle}\" r=\"{}\"/>",
                left + 14.0,
                self.radius()
            ),
            false => format!("<path class=\"line look{look}\" d=\"M{left} {middle}h28\"/>"),
        }
    }
}

pub(super) const WIDTH: f64 = 720.0;
pub(super) const HEIGHT: f64 = 340.0;
pub(super) const LEFT: f64 = 64.0;
pub(super) const RIGHT: f64 = 20.0;
pub(super) const ABOVE: f64 = 14.0;
pub(super) const BELOW: f64 = 52.0;

/// Radius of a dot, on a line and where there is none.
const DOT: f64 = 3.0;
const POINT: f64 = 5.0;

/// Above and below the axes, in a file of its own.
pub(super) const TITLE: f64 = 24.0;
pub(super) const LEGEND_ROW: f64 = 20.0;
pub(super) const LEGEND_COLUMNS: usize = 3;

/// More points than this add bytes and no sight.
const MOST_POINTS: usize = 1000;

/// Colours and dashes of lines in the style sheet.
pub(super) const LOOKS: usize = 10;

impl Chart {
    pub(super) fn to_html(&self) -> String {
        let names: Vec<&str> = self
            .series
            .iter()
            .map(|series| series.name.as_str())
            .collect();
        let alt = escape(&format!(
            "Line chart: {}; lines: {}.",
            self.title,
            names.join(", ")
        ));
        let mut html = String::from("<figure class=\"chart\">\n");
        if !self.title.is_empty() {
            let _ = writeln!(html, "<figcaption>{}</figcaption>", escape(&self.title));
        }
        let _ = writeln!(
            html,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{alt}\">"
        );
        self.draw(&mut html);
        html.push_str("</svg>\n");
        self.write_legend(&mut html);
        html.push_str("</figure>");
        html
    }

    /// The chart as an SVG file, with its title above and its legend below.
    pub fn to_svg(&self) -> String {
        let rows = self.series.len().div_ceil(LEGEND_COLUMNS);
        let height = HEIGHT + TITLE + LEGEND_ROW * rows as f64 + ABOVE;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart file\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\">\n\
             <style>\n{CHART_STYLE}</style>\n<rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
             <text x=\"{LEFT}\" y=\"20\" class=\"title\">{}</text>\n<g transform=\"translate(0 {TITLE})\">\n",
            escape(&self.title)
        );
        self.draw(&mut svg);
        let width = (WIDTH - LEFT - RIGHT) / LEGEND_COLUMNS as f64;
        for (number, series) in self.series.iter().enumerate() {
            let left = LEFT + width * (number % LEGEND_COLUMNS) as f64;
            let base = HEIGHT + LEGEND_ROW * (number / LEGEND_COLUMNS + 1) as f64 - 6.0;
            let (look, line, text) = (number % LOOKS, base - 4.0, left + 36.0);
            let _ = writeln!(
                svg,
                "{}<text x=\"{text}\" y=\"{base}\">{}</text>",
                series.sign(look, (left, line)),
                escape(&series.name)
            );
        }
        svg.push_str("</g>\n</svg>\n");
        svg
    }

    /// The axes, and whether there is anything to see between them.
    pub(super) fn axes(&self) -> (Axis, Axis, bool) {
        let shown = |(x, y): &(f64, f64)| {
            let finite = x.is_finite() && y.is_finite();
            finite && (*x > 0.0 || !self.log_x) && (*y > 0.0 || !self.log_y)
        };
        let points = || {
            self.series
                .iter()
                .flat_map(|series| &series.points)
                .copied()
                .filter(shown)
        };
        let x = match self.log_x {
            true => Axis::logarithmic(points().map(|(x, _)| x)),
            false => Axis::linear(points().map(|(x, _)| x), 7, false),
        };
        let y = match self.log_y {
            true => Axis::logarithmic(points().map(|(_, y)| y)),
            false => Axis::linear(points().map(|(_, y)| y), 5, true),
        };
        (x, y, points().next().is_some())
    }

    /// Everything within the axes, and the axes.
    fn draw(&self, html: &mut String) {
        let (x, y, any) = self.axes();
        self.draw_axes(html, &x, &y);
        match any {
            false => {
                let (middle, height) = (LEFT + (WIDTH - LEFT - RIGHT) / 2.0, HEIGHT / 2.0);
                let _ = writeln!(
                    html,
                    "<text x=\"{middle}\" y=\"{height}\" class=\"middle\">no data yet</text>"
                );
            }
            true => {
                for (number, series) in self.series.iter().enumerate() {
                    draw_line(html, series, number % LOOKS, &x, &y, self.dots);
                }
            }
        }
    }

    fn draw_axes(&self, html: &mut String, x: &Axis, y: &Axis) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BELOW);
        for (tick, label) in y.ticks.iter().zip(y.labels()) {
            let Some(height) = y.place(*tick).map(across_y) else {
                continue;
            };
            let _ = writeln!(
                html,
                "<path class=\"grid\" d=\"M{LEFT} {height:.1}H{right}\"/>"
            );
            let (left, base) = (LEFT - 8.0, height + 4.0);
            let _ = writeln!(
                html,
                "<text x=\"{left}\" y=\"{base:.1}\" class=\"end\">{label}</text>"
            );
        }
        for (tick, label) in x.ticks.iter().zip(x.labels()) {
            let Some(place) = x.place(*tick).map(across_x) else {
                continue;
            };
            let base = bottom + 18.0;
            let _ = writeln!(html, "<path class=\"axis\" d=\"M{place:.1} {bottom}v5\"/>");
            let _ = writeln!(
                html,
                "<text x=\"{place:.1}\" y=\"{base}\" class=\"middle\">{label}</text>"
            );
        }
        let _ = writeln!(
            html,
            "<path class=\"axis\" d=\"M{LEFT} {bottom}H{right}\"/>"
        );
        let (middle, foot) = ((LEFT + right) / 2.0, HEIGHT - 10.0);
        let _ = writeln!(
            html,
            "<text x=\"{middle}\" y=\"{foot}\" class=\"middle label\">{}</text>",
            escape(&self.x_label)
        );
        let centre = (ABOVE + bottom) / 2.0;
        let _ = writeln!(
            html,
            "<text transform=\"translate(14 {centre}) rotate(-90)\" class=\"middle label\">{}</text>",
            escape(&self.y_label)
        );
    }

    fn write_legend(&self, html: &mut String) {
        if self.series.is_empty() {
            return;
        }
        html.push_str("<ul class=\"legend\">\n");
        for (number, series) in self.series.iter().enumerate() {
            let look = number % LOOKS;
            let _ = writeln!(
                html,
                "<li><svg viewBox=\"0 0 28 10\" width=\"28\" height=\"10\" aria-hidden=\"true\">\
                 {}</svg>{}</li>",
                series.sign(look, (0.0, 5.0)),
                escape(&series.name)
            );
        }
        html.push_str("</ul>\n");
    }
}

pub(super) fn across_x(place: f64) -> f64 {
    LEFT + place * (WIDTH - LEFT - RIGHT)
}

pub(super) fn across_y(place: f64) -> f64 {
    ABOVE + (1.0 - place) * (HEIGHT - ABOVE - BELOW)
}

/// The unbroken pieces of a line, as places from 0 to 1 along both axes.
pub(super) fn pieces(series: &Series, x: &Axis, y: &Axis) -> Vec<Vec<(f64, f64)>> {
    let mut pieces: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
    for point in thinned(&series.points) {
        match (x.place(point.0), y.place(point.1)) {
            (Some(px), Some(py)) => pieces
                .last_mut()
                .into_iter()
                .for_each(|piece| piece.push((px, py))),
            _ => pieces.push(Vec::new()),
        }
    }
    pieces
}

fn draw_line(html: &mut String, series: &Series, look: usize, x: &Axis, y: &Axis, dots: bool) {
    let mut path = String::new();
    let radius = series.radius();
    for piece in &pieces(series, x, y) {
        for (number, (px, py)) in piece.iter().enumerate() {
            let pen = if number == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{pen}{:.1} {:.1}", across_x(*px), across_y(*py));
        }
        // A point without neighbours has no line; it gets a dot in any case.
        if dots || piece.len() == 1 {
            for (px, py) in piece {
                let (cx, cy) = (across_x(*px), across_y(*py));
                let _ = writeln!(
                    html,
                    "<circle class=\"dot look{look}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"{radius}\"/>"
                );
            }
        }
    }
    if series.is_a_point() {
        return;
    }
    let _ = writeln!(
        html,
        "<path class=\"line look{look}\" d=\"{path}\"><title>{}</title></path>",
        escape(&series.name)
    );
}

/// Long lines as means of neighbours, so that noise does not decide which points are kept.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let group = points.len().div_ceil(MOST_POINTS).max(1);
    let mean = |group: &[(f64, f64)]| {
        let (x, y) = group
            .iter()
            .fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
        (x / group.len() as f64, y / group.len() as f64)
    };
    points.chunks(group).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(points: Vec<(f64, f64)>, log_x: bool) -> String {
        Chart {
            series: vec![Series::new("a", points)],
            log_x,
            ..Chart::default()
        }
        .to_html()
    }

    #[test]
    fn a_line_runs_from_corner_to_corner() {
        let html = drawn(vec![(0.0, 0.0), (10.0, 5.0)], false);
        assert!(html.contains("d=\"M64.0 288.0L700.0 14.0\""), "{html}");
    }

    #[test]
    fn a_line_breaks_at_what_is_not_a_number() {
        let html = drawn(
            vec![
                (0.0, 0.0),
                (1.0, 1.0),
                (2.0, f64::NAN),
                (3.0, 3.0),
                (4.0, 5.0),
            ],
            false,
        );
        let line = html
            .split("class=\"line look0\" d=\"")
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap();
        assert_eq!(line.matches('M').count(), 2);
        assert!(!html.contains("NaN"));
    }

    #[test]
    fn a_logarithmic_axis_leaves_out_zero() {
        let html = drawn(vec![(0.0, 9.0), (1.0, 1.0), (100.0, 2.0)], true);
        assert!(html.contains("M64.0 ") && !html.contains("inf") && !html.contains("NaN"));
        assert!(html.contains(">100</text>"));
    }

    #[test]
    fn single_points_are_dots_and_nothing_is_said_so() {
        let point = drawn(vec![(1.0, 1.0)], false);
        assert_eq!(point.matches("<circle").count(), 2, "also in the legend");
        assert_eq!(point.matches(" d=\"\"").count(), 0, "{point}");
        assert!(drawn(vec![], false).contains("no data yet"));
    }

    #[test]
    fn a_file_of_its_own_has_title_legend_and_dots() {
        let chart = Chart {
            title: "a < b".into(),
            series: vec![Series::new("first", vec![(1.0, 1.0), (2.0, 2.0)]); 4],
            dots: true,
            ..Chart::default()
        };
        let svg = chart.to_svg();
        assert!(
            svg.starts_with("<svg xmlns=") && svg.contains("a &lt; b"),
            "{svg}"
        );
        assert_eq!(svg.matches(">first</text>").count(), 4);
        assert_eq!(svg.matches("<circle").count(), 8);
        assert_eq!(chart.to_html().matches("<circle").count(), 8);
        // A style for boxes of a page would move a drawing within its frame.
        assert!(!svg.contains("padding") && svg.contains(".look0"));
    }

    #[test]
    fn long_lines_are_thinned_by_means() {
        let points: Vec<(f64, f64)> = (0..4000).map(|x| (x as f64, (x % 2) as f64)).collect();
        let thin = thinned(&points);
        assert_eq!(thin.len(), 1000);
        assert!(thin.iter().all(|(_, y)| *y == 0.5));
    }
}
