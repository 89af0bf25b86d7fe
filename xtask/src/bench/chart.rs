//! Line charts, as SVG.

use std::fmt::Write as _;

/// A cost by another quantity, as points from left to right.
pub struct Chart<'a> {
    pub title: &'a str,
    pub axis: &'a str,
    /// Uses a logarithmic horizontal axis.
    pub logarithmic: bool,
    pub points: &'a [(f64, f64)],
}

/// The size of the image, and the edges of its frame.
const SIZE: (f64, f64) = (640.0, 260.0);
const FRAME: (f64, f64, f64, f64) = (60.0, 36.0, 620.0, 210.0);

impl Chart<'_> {
    pub fn svg(&self) -> Result<String, std::fmt::Error> {
        let (left, top, right, bottom) = FRAME;
        let (width, height) = SIZE;
        let scaled = |at: f64| if self.logarithmic { at.max(0.3).log10() } else { at };
        let ends = [self.points.first(), self.points.last()]
            .map(|point| point.map_or(0.0, |p| scaled(p.0)));
        let [first, last] = ends;
        let x = |at: f64| left + (scaled(at) - first) / (last - first) * (right - left);
        let most = self.points.iter().map(|(_, cost)| *cost).fold(0.0, f64::max);
        let step = step(most);
        let highest = (most / step).ceil() * step;
        let y = |cost: f64| bottom - cost / highest * (bottom - top);

        let mut svg = String::new();
        writeln!(
            svg,
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">
<rect width="{width}" height="{height}" fill="#fff"/>
<text x="{left}" y="20" font-size="14" fill="#222">{}</text>"##,
            self.title
        )?;
        let mut line = 0.0;
        while line <= highest + step / 2.0 {
            let at = y(line);
            writeln!(
                svg,
                r##"<path d="M{left} {at:.1}H{right}" stroke="#ddd"/><text x="{:.1}" y="{:.1}" text-anchor="end" fill="#555">{line}</text>"##,
                left - 6.0,
                at + 4.0,
            )?;
            line += step;
        }
        let mut path = String::new();
        for (n, (at, cost)) in self.points.iter().enumerate() {
            let (at_x, at_y) = (x(*at), y(*cost));
            write!(path, "{}{at_x:.1} {at_y:.1}", if n == 0 { 'M' } else { 'L' })?;
            writeln!(
                svg,
                r##"<circle cx="{at_x:.1}" cy="{at_y:.1}" r="3" fill="#1a6"/><text x="{at_x:.1}" y="{:.1}" text-anchor="middle" fill="#555">{at}</text>"##,
                bottom + 16.0,
            )?;
        }
        writeln!(
            svg,
            r##"<path d="{path}" fill="none" stroke="#1a6" stroke-width="2"/>
<text x="{:.1}" y="{:.1}" text-anchor="middle" fill="#222">{}</text>
<text transform="translate(16 {:.1}) rotate(-90)" text-anchor="middle" fill="#222">CPU, µs</text>
</svg>"##,
            f64::midpoint(left, right),
            bottom + 36.0,
            self.axis,
            f64::midpoint(top, bottom),
        )?;
        Ok(svg)
    }
}

/// Returns a round distance between grid lines, for three to eight lines.
fn step(most: f64) -> f64 {
    let power = 10_f64.powf((most.max(1e-9) / 4.0).log10().floor());
    let fits = |step: &f64| most / step <= 6.0;
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(fits)
        .unwrap_or(power * 10.0)
}
