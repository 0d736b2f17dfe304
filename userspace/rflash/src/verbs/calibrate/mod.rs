// SPDX-License-Identifier: GPL-2.0-only
//! `rflash calibrate`.

mod block;
mod fit;
mod modelled;
mod plot;
mod state;
mod sweep;
mod target;

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

pub use block::Block;
pub use fit::{Fit, Row, SizeCost, fit};
pub use modelled::Modelled;
pub use sweep::{Effort, Measurement, PAGE, Record, SHARES, sweep};
pub use target::{Arrival, Job, Seen, Target};

use crate::cli::OutputArgs;
use crate::error::Error;
use crate::table::{self, Column, columns};

use super::{note, print};

#[derive(Debug, Args)]
pub struct CalibrateArgs {
    /// The device, as in /dev/nvme0n1, or a file on it
    #[arg(required_unless_present = "model", conflicts_with = "model")]
    pub target: Option<PathBuf>,

    /// Where to write the model
    #[arg(long, value_name = "FILE.toml")]
    pub out: PathBuf,

    /// Calibrate a device of the flash model instead: p3600 or million
    #[arg(long, value_name = "PRESET")]
    pub model: Option<String>,

    /// Yes, destroy all data on the device
    #[arg(long)]
    pub consent: bool,

    /// Go on with a calibration that was interrupted
    #[arg(long)]
    pub resume: bool,

    /// Draw the fit
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,

    #[command(flatten)]
    pub output: OutputArgs,
}

pub fn run(args: &CalibrateArgs) -> Result<(), Error> {
    let mut say = |text: &str| note(text);
    let (record, fit) = match (&args.model, &args.target) {
        (Some(preset), _) => {
            let mut target = Modelled::preset(preset, 1)?;
            calibrate(&mut target, &Effort::VIRTUAL, args, &mut say)?
        }
        (None, Some(path)) if !args.consent => {
            let text = format!(
                "calibrating {} destroys all data on it: give --consent if that is what you want",
                path.display()
            );
            return Err(Error::new(text));
        }
        (None, Some(path)) => {
            let mut target = Block::open(path)?;
            calibrate(&mut target, &Effort::LIVE, args, &mut say)?
        }
        (None, None) => return Err(Error::Usage("give a device, or --model".to_string())),
    };
    if let Some(path) = &args.plot {
        state::write(path, &plot::svg(&record, &fit))?;
    }
    print(&match args.output.format.is_json() {
        true => table::pretty(&to_json(&fit)),
        false => to_text(&fit, &args.out),
    })
}

/// Measure what is not measured yet, fit, and write the model.
fn calibrate(
    target: &mut dyn Target,
    effort: &Effort,
    args: &CalibrateArgs,
    say: &mut dyn FnMut(&str),
) -> Result<(Record, Fit), Error> {
    let kept = state::path(&args.out);
    let mut record = state::begin(&kept, &target.identity(), args.resume)?;
    if !record.preconditioned {
        target.precondition(say)?;
        record.preconditioned = true;
        state::save(&kept, &record)?;
    }
    let mut keep = |record: &Record, line: &str| {
        say(line);
        state::save(&kept, record)
    };
    sweep(target, effort, &mut record, &mut keep)?;
    let fit = fit(&record, &target.name()).map_err(|e| {
        let at = kept.display();
        Error::new(format!(
            "{e}; what was measured is in {at}: remove it to measure again"
        ))
    })?;
    let text = format!(
        "# {}\n{}",
        target.identity().replace('\n', " "),
        fit.model.to_toml()
    );
    state::write(&args.out, &text)?;
    // The model is there; what is left over would only be in the way.
    let _ = std::fs::remove_file(&kept);
    Ok((record, fit))
}

const ROWS: &[Column<Row>] = columns![
    "p95_us", "P95 us", Number, |r| r.p95_us.into();
    "mixed", "MIXED READS/S", Number, |r| whole(r.weighted.iter().copied().fold(f64::MAX, f64::min));
    "read_only", "READ-ONLY READS/S", Number, |r| whole(r.read_only);
    "spread", "SPREAD", Number, |r| hundredths(r.spread);
];

const SIZE_ROWS: &[Column<SizeCost>] = columns![
    "bytes", "BYTES", Number, |s| s.bytes.into();
    "read_percent", "READS %", Number, |s| s.reads.into();
    "charged_pages", "CHARGED PAGES", Number, |s| (s.bytes / PAGE).into();
    "measured_pages", "MEASURED PAGES", Number, |s| hundredths(s.pages);
];

fn whole(value: f64) -> Value {
    json!(value.round() as u64)
}

fn hundredths(value: f64) -> Value {
    json!((value * 100.0).round() / 100.0)
}

fn to_text(fit: &Fit, out: &Path) -> String {
    let mut text = format!(
        "A 4 KiB write costs {:.1} reads. The device bears so many page reads a second (writes weighted) at a p95 of:\n\n{}\n",
        fit.write_cost,
        table::table(ROWS, &fit.rows)
    );
    if let (Some(last), Some(first)) = (fit.dropped.last(), fit.rows.first()) {
        text += &format!(
            "At {last} us and below nothing can be promised: shares of reads differ by more than a cost says, or reads take longer. The first row is {} us.\n",
            first.p95_us
        );
    }
    text += &format!(
        "Other sizes, charged and as measured:\n\n{}\nio.cost.model: {}\nThe model is in {}\n",
        table::table(SIZE_ROWS, &fit.sizes),
        fit.model.to_io_cost(),
        out.display()
    );
    text
}

fn to_json(fit: &Fit) -> Value {
    let rows: Vec<Value> = fit.rows.iter().map(|r| table::json(ROWS, r)).collect();
    let sizes: Vec<Value> = fit
        .sizes
        .iter()
        .map(|s| table::json(SIZE_ROWS, s))
        .collect();
    let point =
        |p: &qos::Point| json!({ "p95_us": p.p95_us, "mixed": p.mixed, "read_only": p.read_only });
    json!({
        "name": fit.model.name,
        "write_cost": hundredths(fit.write_cost),
        "max_tokens": fit.model.max,
        "points": fit.model.curve.iter().map(point).collect::<Vec<_>>(),
        "rows": rows,
        "dropped_us": fit.dropped,
        "sizes": sizes,
        "io_cost": fit.model.to_io_cost(),
    })
}

#[cfg(test)]
mod tests;
