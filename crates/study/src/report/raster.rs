//! Charts as pictures, for places that show no SVG. Twice as large as the drawing, in the colours of the light page.

use super::chart::*;
use super::ticks::Axis;
use embedded_graphics::Pixel;
use embedded_graphics::draw_target::DrawTarget;
use embedded_graphics::geometry::{OriginDimensions, Point, Size};
use embedded_graphics::mono_font::MonoTextStyle;
use embedded_graphics::mono_font::iso_8859_1::{FONT_6X10, FONT_10X20};
use embedded_graphics::pixelcolor::{Rgb888, RgbColor};
use embedded_graphics::primitives::{Circle, Line, Primitive, PrimitiveStyle};
use embedded_graphics::text::{Alignment, Baseline, Text, TextStyleBuilder};
use embedded_graphics::{Drawable, geometry::Dimensions};
use rrvq::Result;
use rrvq::picture::Picture;
use std::convert::Infallible;

const SCALE: f64 = 2.0;
const PAPER: Rgb888 = Rgb888::new(0xfd, 0xfc, 0xfa);
const INK: Rgb888 = Rgb888::new(0x22, 0x25, 0x2a);
const SOFT: Rgb888 = Rgb888::new(0x5d, 0x63, 0x6d);
const RULE: Rgb888 = Rgb888::new(0xdc, 0xd9, 0xd3);
/// Those of the style sheet.
const LINES: [Rgb888; LOOKS] = [
    Rgb888::new(0x1f, 0x5f, 0xbf),
    Rgb888::new(0xc8, 0x50, 0x1e),
    Rgb888::new(0x2a, 0x80, 0x50),
    Rgb888::new(0x8a, 0x4b, 0xb0),
    Rgb888::new(0xb8, 0x86, 0x0b),
    Rgb888::new(0x14, 0x85, 0x8f),
    Rgb888::new(0xb8, 0x32, 0x64),
    Rgb888::new(0x5f, 0x66, 0x70),
    Rgb888::new(0x6b, 0x4a, 0x2b),
    Rgb888::new(0x7a, 0x9a, 0x01),
];

struct Canvas {
    size: Size,
    pixels: Vec<u8>,
}

impl Canvas {
    fn new(width: f64, height: f64) -> Canvas {
        let size = Size::new((width * SCALE) as u32, (height * SCALE) as u32);
        let paper = [PAPER.r(), PAPER.g(), PAPER.b()];
        Canvas {
            size,
            pixels: paper.repeat((size.width * size.height) as usize),
        }
    }

    /// Draws; nothing drawn here can fail.
    fn draw(&mut self, what: &impl Drawable<Color = Rgb888>) {
        let Ok(_) = what.draw(self);
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: Rgb888, width: u32) {
        let style = PrimitiveStyle::with_stroke(colour, width);
        self.draw(&Line::new(at(from), at(to)).into_styled(style));
    }

    fn dot(&mut self, centre: (f64, f64), radius: f64, colour: Rgb888) {
        let style = PrimitiveStyle::with_fill(colour);
        let across = (2.0 * radius * SCALE) as u32 + 1;
        self.draw(&Circle::with_center(at(centre), across).into_styled(style));
    }

    fn text(&mut self, text: &str, place: (f64, f64), colour: Rgb888, align: Alignment) {
        let style = TextStyleBuilder::new().alignment(align);
        let style = style.baseline(Baseline::Middle).build();
        let font = MonoTextStyle::new(&FONT_10X20, colour);
        let text = in_latin(text);
        self.draw(&Text::with_text_style(&text, at(place), font, style));
    }

    /// Text that runs upwards, its middle at `place`.
    fn upwards(&mut self, text: &str, place: (f64, f64), colour: Rgb888) {
        let text = in_latin(text);
        let font = MonoTextStyle::new(&FONT_10X20, colour);
        let drawn = Text::with_baseline(&text, Point::zero(), font, Baseline::Top);
        let size = drawn.bounding_box().size;
        let mut lying = Canvas::new(size.width as f64 / SCALE, size.height as f64 / SCALE);
        lying.draw(&drawn);
        let Point { x: left, y: above } = at(place);
        let (left, below) = (left - size.height as i32 / 2, above + size.width as i32 / 2);
        let pixels = lying.pixels.chunks_exact(3).enumerate().map(|(i, rgb)| {
            let (x, y) = (i as i32 % size.width as i32, i as i32 / size.width as i32);
            let colour = Rgb888::new(rgb[0], rgb[1], rgb[2]);
            Pixel(Point::new(left + y, below - x), colour)
        });
        let Ok(()) = self.draw_iter(pixels);
    }
}

impl OriginDimensions for Canvas {
    fn size(&self) -> Size {
        self.size
    }
}

impl DrawTarget for Canvas {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(
        &mut self,
        pixels: I,
    ) -> std::result::Result<(), Infallible> {
        let inside = self.bounding_box();
        for Pixel(point, colour) in pixels {
            if inside.contains(point) {
                let place = 3 * (point.y as u32 * self.size.width + point.x as u32) as usize;
                let rgb = [colour.r(), colour.g(), colour.b()];
                self.pixels[place..place + 3].copy_from_slice(&rgb);
            }
        }
        Ok(())
    }
}

fn at((x, y): (f64, f64)) -> Point {
    Point::new((x * SCALE).round() as i32, (y * SCALE).round() as i32)
}

/// What the font has.
fn in_latin(text: &str) -> String {
    let mut latin = String::new();
    for letter in text.chars() {
        match letter {
            '−' | '–' => latin.push('-'),
            '≈' => latin.push('~'),
            '≥' => latin.push_str(">="),
            'ℓ' => latin.push('l'),
            'δ' => latin.push_str("delta"),
            'τ' => latin.push_str("tau"),
            _ => latin.push(letter),
        }
    }
    latin
}

/// A picture whose rows have their names on the left: as many rows, all equally high, as there are names.
pub fn with_rows_named(picture: &Picture, names: &[String]) -> Result<Picture> {
    let [height, width, channels] = picture.shape();
    let row = height as f64 / names.len().max(1) as f64;
    let font = if row >= 40.0 { &FONT_10X20 } else { &FONT_6X10 };
    let letter = font.character_size.width;
    let longest = names.iter().map(|name| in_latin(name).chars().count());
    let margin = letter * longest.max().unwrap_or(0) as u32 + 2 * letter;
    let size = Size::new(margin + width as u32, height as u32);
    let paper = [PAPER.r(), PAPER.g(), PAPER.b()];
    let mut canvas = Canvas {
        size,
        pixels: paper.repeat((size.width * size.height) as usize),
    };
    for (number, name) in names.iter().enumerate() {
        let style = TextStyleBuilder::new().alignment(Alignment::Right);
        let style = style.baseline(Baseline::Middle).build();
        let place = Point::new(
            (margin - letter) as i32,
            ((number as f64 + 0.5) * row).round() as i32,
        );
        let font = MonoTextStyle::new(font, INK);
        canvas.draw(&Text::with_text_style(&in_latin(name), place, font, style));
    }
    for (y, line) in picture.pixels().chunks_exact(width * channels).enumerate() {
        let start = 3 * (y * size.width as usize + margin as usize);
        let target = canvas.pixels[start..][..3 * width].chunks_exact_mut(3);
        for (rgb, pixel) in target.zip(line.chunks_exact(channels)) {
            for (c, value) in rgb.iter_mut().enumerate() {
                *value = pixel[c % channels];
            }
        }
    }
    Picture::new([height, size.width as usize, 3], canvas.pixels)
}

impl Chart {
    /// The chart as a picture, with its title above and its legend below.
    pub fn to_picture(&self) -> Result<Picture> {
        let rows = self.series.len().div_ceil(LEGEND_COLUMNS);
        let height = HEIGHT + TITLE + LEGEND_ROW * rows as f64 + ABOVE;
        let mut canvas = Canvas::new(WIDTH, height);
        canvas.text(&self.title, (LEFT, 12.0), INK, Alignment::Left);
        let (x, y, _) = self.axes();
        self.rule(&mut canvas, &x, &y);
        for (number, series) in self.series.iter().enumerate() {
            let colour = LINES[number % LOOKS];
            for piece in pieces(series, &x, &y) {
                let place = |&(px, py): &(f64, f64)| (across_x(px), TITLE + across_y(py));
                let points: Vec<(f64, f64)> = piece.iter().map(place).collect();
                for pair in points.windows(2) {
                    canvas.line(pair[0], pair[1], colour, 3);
                }
                if self.dots || points.len() == 1 {
                    for point in points {
                        canvas.dot(point, series.radius(), colour);
                    }
                }
            }
        }
        let width = (WIDTH - LEFT - RIGHT) / LEGEND_COLUMNS as f64;
        for (number, series) in self.series.iter().enumerate() {
            let left = LEFT + width * (number % LEGEND_COLUMNS) as f64;
            let base = TITLE + HEIGHT + LEGEND_ROW * (number / LEGEND_COLUMNS + 1) as f64 - 10.0;
            let colour = LINES[number % LOOKS];
            match series.is_a_point() {
                true => canvas.dot((left + 14.0, base), series.radius(), colour),
                false => canvas.line((left, base), (left + 28.0, base), colour, 5),
            }
            canvas.text(&series.name, (left + 34.0, base), INK, Alignment::Left);
        }
        let shape = [canvas.size.height as usize, canvas.size.width as usize, 3];
        Picture::new(shape, canvas.pixels)
    }

    fn rule(&self, canvas: &mut Canvas, x: &Axis, y: &Axis) {
        let (right, bottom) = (WIDTH - RIGHT, TITLE + HEIGHT - BELOW);
        for (tick, label) in y.ticks.iter().zip(y.labels()) {
            if let Some(place) = y.place(*tick) {
                let height = TITLE + across_y(place);
                canvas.line((LEFT, height), (right, height), RULE, 2);
                canvas.text(&label, (LEFT - 8.0, height), SOFT, Alignment::Right);
            }
        }
        for (tick, label) in x.ticks.iter().zip(x.labels()) {
            if let Some(place) = x.place(*tick).map(across_x) {
                canvas.line((place, bottom), (place, bottom + 5.0), SOFT, 2);
                canvas.text(&label, (place, bottom + 15.0), SOFT, Alignment::Center);
            }
        }
        canvas.line((LEFT, bottom), (right, bottom), SOFT, 2);
        let middle = (LEFT + right) / 2.0;
        canvas.text(
            &self.x_label,
            (middle, bottom + 35.0),
            SOFT,
            Alignment::Center,
        );
        canvas.upwards(&self.y_label, (10.0, (TITLE + ABOVE + bottom) / 2.0), SOFT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_left_of_their_rows() {
        let grey = Picture::new([90, 50, 1], vec![7; 90 * 50]).unwrap();
        let named = with_rows_named(&grey, &["a".into(), "lower".into()]).unwrap();
        let margin = 7 * 10;
        assert_eq!(named.shape(), [90, 50 + margin, 3]);
        let pixel = |x: usize, y: usize| &named.pixels()[3 * (y * (50 + margin) + x)..][..3];
        assert_eq!(pixel(margin, 0), [7; 3]);
        assert_eq!(pixel(49 + margin, 89), [7; 3]);
        let inked = |rows: std::ops::Range<usize>, columns: std::ops::Range<usize>| {
            let mut all = rows.flat_map(|y| columns.clone().map(move |x| (x, y)));
            all.any(|(x, y)| pixel(x, y) == [INK.r(), INK.g(), INK.b()])
        };
        assert!(
            inked(10..35, 50..60) && !inked(10..35, 0..50),
            "one letter, on the right"
        );
        assert!(inked(55..80, 10..60) && !inked(36..54, 0..60));
    }

    #[test]
    fn a_line_is_drawn_where_the_svg_has_it() {
        let chart = Chart {
            title: "π ≥ 1 − δ".into(),
            y_label: "up".into(),
            series: vec![Series::new("a", vec![(0.0, 0.0), (10.0, 5.0)])],
            ..Chart::default()
        };
        let picture = chart.to_picture().unwrap();
        let [height, width, _] = picture.shape();
        assert_eq!((height, width), (796, 1440));
        let pixel = |x: usize, y: usize| &picture.pixels()[3 * (y * width + x)..][..3];
        // The SVG's line runs from (64, 288) to (700, 14), below a title of 24.
        assert_eq!(pixel(2 * 382, 2 * (151 + 24)), [0x1f, 0x5f, 0xbf]);
        assert_ne!(pixel(2 * 382, 2 * (100 + 24)), [0x1f, 0x5f, 0xbf]);
        let empty = Chart::default().to_picture().unwrap();
        assert_eq!(empty.shape()[1], 1440);
    }
}
