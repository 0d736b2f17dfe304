// SPDX-License-Identifier: GPL-2.0-only
//! The fit as a plot: p95 against requests, and against tokens, where all
//! shares of reads should lie on one line.

use std::fmt::Write as _;

use super::fit::Fit;
use super::sweep::{Record, SHARES};

const COLOURS: [&str; 6] = [
    "#1b6ca8", "#0f8b8d", "#2a9d5c", "#c98a00", "#c4512d", "#7a3b9a",
];

/// A panel's scale.
struct Axes {
    left: f64,
    most_x: f64,
    most_y: f64,
}

const TOP: f64 = 40.0;
const WIDTH: f64 = 345.0;
const HEIGHT: f64 = 230.0;

impl Axes {
    fn x(&self, value: f64) -> f64 {
        self.left + WIDTH * (value / self.most_x).min(1.0)
    }

    fn y(&self, value: f64) -> f64 {
        TOP + HEIGHT * (1.0 - (value / self.most_y).min(1.0))
    }

    fn draw(&self, out: &mut String, title: &str) {
        let _ = writeln!(
            out,
            r##"<text x="{:.0}" y="24" font-weight="bold">{title}</text>"##,
            self.left
        );
        for i in 0..=5 {
            let (x, y) = (
                self.most_x * f64::from(i) / 5.0,
                self.most_y * f64::from(i) / 5.0,
            );
            let _ = writeln!(
                out,
                r##"<path d="M{:.0} {:.0}h{WIDTH:.0}" stroke="#ddd"/><text x="{:.0}" y="{:.0}" text-anchor="end">{y:.0}</text><text x="{:.0}" y="{:.0}" text-anchor="middle">{:.0}K</text>"##,
                self.left,
                self.y(y),
                self.left - 6.0,
                self.y(y) + 4.0,
                self.x(x),
                TOP + HEIGHT + 16.0,
                x / 1e3
            );
        }
    }

    fn line(&self, out: &mut String, points: &[(f64, f64)], style: &str) {
        let inside = points
            .iter()
            .filter(|p| p.1 <= self.most_y && p.0 <= self.most_x);
        let path: Vec<String> = inside
            .map(|&(x, y)| {
                let (x, y) = (self.x(x), self.y(y));
                format!("{x:.1} {y:.1}")
            })
            .collect();
        if !path.is_empty() {
            let _ = writeln!(
                out,
                r##"<path d="M{}" fill="none" {style}/>"##,
                path.join("L")
            );
        }
    }
}

/// A round number not below.
fn ceiling(value: f64) -> f64 {
    let step = 10f64.powf(value.max(1.0).log10().floor()) / 2.0;
    (value / step).ceil() * step
}

/// An SVG document.
pub fn svg(record: &Record, fit: &Fit) -> String {
    let curves: Vec<(f64, Vec<(f64, f64)>)> = SHARES
        .iter()
        .map(|&reads| {
            let curve = record.curve(reads);
            let points = curve.iter().map(|(_, s)| (s.iops, s.p95_us)).collect();
            (f64::from(reads) / 100.0, points)
        })
        .collect();
    let weight = |share: f64| match share < 1.0 {
        true => share + (1.0 - share) * fit.write_cost,
        false => 1.0,
    };
    let most = |f: fn(&(f64, f64)) -> f64, scale: &dyn Fn(f64) -> f64| {
        let all = curves
            .iter()
            .flat_map(|(share, points)| points.iter().map(move |p| f(p) * scale(*share)));
        ceiling(all.fold(1.0, f64::max))
    };
    // Overload would press all the rest to the ground.
    let knee = fit.rows.first().map_or(500.0, |row| f64::from(row.p95_us));
    let most_y = ceiling((knee * 6.0).min(most(|p| p.1, &|_| 1.0)));
    let requests = Axes {
        left: 58.0,
        most_x: most(|p| p.0, &|_| 1.0),
        most_y,
    };
    let tokens = Axes {
        left: 483.0,
        most_x: most(|p| p.0, &weight),
        most_y,
    };
    let mut out = String::from(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 850 340" font-family="sans-serif" font-size="12">
<rect width="850" height="340" fill="#fff"/>
"##,
    );
    requests.draw(&mut out, "measured");
    let title = format!("weighted: a write is {:.1} reads", fit.write_cost);
    tokens.draw(&mut out, &title);
    for (i, ((share, points), colour)) in curves.iter().zip(COLOURS).enumerate() {
        let style = format!(r##"stroke="{colour}" stroke-width="1.5""##);
        requests.line(&mut out, points, &style);
        let scaled: Vec<_> = points.iter().map(|p| (p.0 * weight(*share), p.1)).collect();
        tokens.line(&mut out, &scaled, &style);
        let x = 120.0 + 105.0 * i as f64;
        let _ = writeln!(
            out,
            r##"<path d="M{x:.0} 318h22" {style}/><text x="{:.0}" y="322">{:.0} % reads</text>"##,
            x + 28.0,
            share * 100.0
        );
    }
    let table: Vec<_> = fit
        .model
        .curve
        .iter()
        .map(|p| (p.mixed as f64 / 100.0, f64::from(p.p95_us)))
        .collect();
    tokens.line(
        &mut out,
        &table,
        r##"stroke="#000" stroke-width="2.5" stroke-dasharray="5 3""##,
    );
    out += r##"<text x="230" y="302" text-anchor="middle">4 KiB requests per second</text>
<text x="655" y="302" text-anchor="middle">page reads per second (100 tokens each); dashed: the model</text>
<text transform="translate(14 155) rotate(-90)" text-anchor="middle">p95 read latency, µs</text>
</svg>
"##;
    out
}
