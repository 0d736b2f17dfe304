// SPDX-License-Identifier: GPL-2.0-only
//! p95 read latency against IOPS for shares of reads, in virtual time:
//!
//!     cargo run --release -p flash-model --example curves -- ../Documentation
//!
//! writes flash-model.csv and flash-model.svg there. The same parameters give
//! the same bytes.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use flash_model::load::{Arrival, Load, run};
use flash_model::{Device, Params, Precondition};

const SHARES: [(f64, &str); 5] = [
    (1.0, "#1b6ca8"),
    (0.95, "#2a9d5c"),
    (0.9, "#c98a00"),
    (0.75, "#c4512d"),
    (0.5, "#7a3b9a"),
];
/// Latencies above are cut off the plot.
const TOP_US: f64 = 2500.0;

/// Rows of ReFlex's sample.devmodel: p95 in microseconds, tokens a second when
/// reads and writes are mixed and when all are reads. A 4 KiB read has 100
/// tokens, a 4 KiB write 1000.
const REFLEX: [(f64, f64, f64); 6] = [
    (500.0, 36e6, 85e6),
    (1000.0, 50e6, 95e6),
    (1500.0, 52e6, 98e6),
    (2000.0, 57e6, 100e6),
    (2500.0, 75e6, 100e6),
    (3000.0, 80e6, 100e6),
];

struct Point {
    share: f64,
    offered: f64,
    iops: f64,
    p50_us: f64,
    p95_us: f64,
    p99_us: f64,
}

fn sweep(params: &Params) -> Result<Vec<Point>, Box<dyn std::error::Error>> {
    let mut device = Device::new(params.clone(), 1)?;
    device.precondition(Precondition::Random);
    let mut now = 0;
    let mut points = Vec::new();
    for (share, _) in SHARES {
        let most = Load {
            measure: 500_000_000,
            ..Load::random(share, Arrival::Depth(512))
        };
        let most = run(&mut device, now, &most);
        now = most.end + 500_000_000;
        for step in 1..=24 {
            let offered = most.iops * f64::from(step) / 24.0;
            let load = Load {
                measure: 500_000_000,
                ..Load::random(share, Arrival::Rate(offered))
            };
            let seen = run(&mut device, now, &load);
            // Until the buffer is empty again.
            now = seen.end + 300_000_000;
            let us = |q| seen.reads.quantile(q).map_or(0.0, |ns| ns as f64 / 1e3);
            points.push(Point {
                share,
                offered,
                iops: seen.iops,
                p50_us: us(0.5),
                p95_us: us(0.95),
                p99_us: us(0.99),
            });
        }
    }
    Ok(points)
}

fn csv(name: &str, points: &[Point]) -> String {
    let mut out = String::new();
    for p in points {
        let _ = writeln!(
            out,
            "{name},{:.0},{:.0},{:.0},{:.1},{:.1},{:.1}",
            p.share * 100.0,
            p.offered,
            p.iops,
            p.p50_us,
            p.p95_us,
            p.p99_us
        );
    }
    out
}

/// One plot at `x`, 420 by 330.
fn panel(
    x: f64,
    title: &str,
    most: f64,
    points: &[Point],
    published: &[(f64, f64, usize)],
) -> String {
    let (left, top, width, height) = (x + 58.0, 40.0, 345.0, 230.0);
    let px = |iops: f64| left + width * iops / most;
    let py = |us: f64| top + height * (1.0 - us.min(TOP_US) / TOP_US);
    let mut out = String::new();
    let _ = writeln!(
        out,
        r##"<text x="{:.0}" y="24" font-weight="bold">{title}</text>"##,
        left
    );
    for i in 0..=5 {
        let us = TOP_US * f64::from(i) / 5.0;
        let iops = most * f64::from(i) / 5.0;
        let _ = writeln!(
            out,
            r##"<path d="M{left:.0} {0:.0}h{width:.0}" stroke="#ddd"/><text x="{1:.0}" y="{2:.0}" text-anchor="end">{us:.0}</text><text x="{3:.0}" y="{4:.0}" text-anchor="middle">{5:.0}K</text>"##,
            py(us),
            left - 6.0,
            py(us) + 4.0,
            px(iops),
            top + height + 16.0,
            iops / 1e3
        );
    }
    for (share, colour) in SHARES {
        let of = points.iter().filter(|p| p.share == share);
        let line: Vec<String> = of
            .filter(|p| p.p95_us <= TOP_US)
            .map(|p| {
                let (x, y) = (px(p.iops), py(p.p95_us));
                format!("{x:.1} {y:.1}")
            })
            .collect();
        let _ = writeln!(
            out,
            r##"<path d="M{}" fill="none" stroke="{colour}" stroke-width="2"/>"##,
            line.join("L")
        );
    }
    for (iops, us, share) in published {
        let colour = SHARES.get(*share).map_or("#000", |s| s.1);
        if *us <= TOP_US && *iops <= most {
            let _ = writeln!(
                out,
                r##"<circle cx="{:.1}" cy="{:.1}" r="3.5" fill="#fff" stroke="{colour}" stroke-width="1.5"/>"##,
                px(*iops),
                py(*us)
            );
        }
    }
    out
}

fn svg(p3600: &[Point], million: &[Point]) -> String {
    let mut out = String::from(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 850 340" font-family="sans-serif" font-size="12">
<rect width="850" height="340" fill="#fff"/>
"##,
    );
    // What ReFlex's table says about each share of reads: tokens a second over
    // tokens of the average request.
    let mut published = Vec::new();
    for (us, mixed, read_only) in REFLEX {
        for (i, (share, _)) in SHARES.iter().enumerate() {
            let rate = if i == 0 { read_only } else { mixed };
            let write = if i == 0 { 0.0 } else { (1.0 - share) * 1000.0 };
            published.push((rate / (share * 100.0 + write), us, i));
        }
    }
    out += &panel(0.0, "p3600", 260e3, p3600, &[]);
    out += &panel(425.0, "million", 1050e3, million, &published);
    for (i, (share, colour)) in SHARES.iter().enumerate() {
        let x = 140.0 + 122.0 * i as f64;
        let _ = writeln!(
            out,
            r##"<path d="M{x:.0} 318h22" stroke="{colour}" stroke-width="2"/><text x="{:.0}" y="322">{:.0} % reads</text>"##,
            x + 28.0,
            share * 100.0
        );
    }
    out += r##"<text x="230" y="302" text-anchor="middle">4 KiB requests per second</text>
<text x="655" y="302" text-anchor="middle">4 KiB requests per second; circles: ReFlex's table</text>
<text transform="translate(14 155) rotate(-90)" text-anchor="middle">p95 read latency, µs</text>
</svg>
"##;
    out
}

fn write(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let p3600 = sweep(&Params::p3600())?;
    let million = sweep(&Params::million())?;
    let mut table = String::from("device,read_percent,offered_iops,iops,p50_us,p95_us,p99_us\n");
    table += &csv("p3600", &p3600);
    table += &csv("million", &million);
    std::fs::write(directory.join("flash-model.csv"), table)?;
    std::fs::write(directory.join("flash-model.svg"), svg(&p3600, &million))?;
    Ok(())
}

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1) else {
        eprintln!("curves: give the directory to write to");
        return ExitCode::from(2);
    };
    match write(Path::new(&directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("curves: {error}");
            ExitCode::FAILURE
        }
    }
}
