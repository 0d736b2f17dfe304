// SPDX-License-Identifier: GPL-2.0-only
//! Calibration without devices: made-up ones, and the flash model in virtual
//! time.

use std::path::Path;

use flash_model::Params;
use qos::{DeviceModel, Op};

use super::*;
use crate::cli::Format;

const QUICK: Effort = Effort {
    depth: 512,
    settle: 0.3,
    warm_up: 0.1,
    reads: 8_000.0,
    least: 0.05,
    most: 1.0,
};

/// A device that is what the cost model says, or is made to differ.
struct Ideal {
    write_cost: f64,
    capacity: f64,
    /// p95 by load, 0 to 1.
    p95: fn(f64) -> f64,
    /// Jobs run, and after how many the device fails.
    jobs: usize,
    fails_after: usize,
}

fn rises(load: f64) -> f64 {
    100.0 + 50.0 * load / (1.0 - load).max(1e-3)
}

impl Ideal {
    fn new(write_cost: f64) -> Ideal {
        Ideal {
            write_cost,
            capacity: 500_000.0,
            p95: rises,
            jobs: 0,
            fails_after: usize::MAX,
        }
    }
}

impl Target for Ideal {
    fn identity(&self) -> String {
        format!("ideal {}", self.write_cost)
    }

    fn name(&self) -> String {
        "ideal".to_string()
    }

    fn precondition(&mut self, _: &mut dyn FnMut(&str)) -> Result<(), Error> {
        Ok(())
    }

    fn run(&mut self, job: &Job) -> Result<Seen, Error> {
        if self.jobs >= self.fails_after {
            return Err(Error::new("the device is gone"));
        }
        self.jobs += 1;
        let reads = f64::from(job.reads) / 100.0;
        let cost = (reads + (1.0 - reads) * self.write_cost) * f64::from(job.bytes.div_ceil(PAGE));
        let most = self.capacity / cost;
        let iops = match job.arrival {
            Arrival::Rate(rate) => rate.min(most),
            Arrival::Depth(_) => most,
        };
        Ok(Seen {
            iops,
            p50_us: 80.0,
            p95_us: (self.p95)(iops / most),
            p99_us: 1000.0,
            reads: 1000,
        })
    }
}

fn measure(target: &mut dyn Target, effort: &Effort) -> Record {
    let mut record = Record::default();
    sweep(target, effort, &mut record, &mut |_, _| Ok(())).unwrap();
    record
}

fn args(out: &Path, resume: bool) -> CalibrateArgs {
    CalibrateArgs {
        target: None,
        out: out.to_path_buf(),
        model: None,
        consent: false,
        resume,
        plot: None,
        output: OutputArgs {
            format: Format::Text,
        },
    }
}

fn fit_of(record: &Record) -> Fit {
    fit(record, "ideal").unwrap()
}

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("rflash-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn an_ideal_device_is_found_exactly() {
    for write_cost in [1.0, 7.0, 10.0, 40.0] {
        let record = measure(&mut Ideal::new(write_cost), &QUICK);
        let fit = fit(&record, "ideal").unwrap();
        assert!(
            (fit.write_cost / write_cost - 1.0).abs() < 0.03,
            "{write_cost}: {}",
            fit.write_cost
        );
        // 100 + 50 * x / (1 - x) = 300 at x = 0.8.
        let rate = fit.model.rate(300, false).unwrap() as f64 / 100.0;
        assert!((rate / 400_000.0 - 1.0).abs() < 0.05, "{rate}");
        assert_eq!(fit.model.check(), Ok(()));
        let size = fit.sizes.iter().find(|s| s.bytes == 16384).unwrap();
        assert!((size.pages - 4.0).abs() < 0.01);
    }
}

#[test]
fn nonsense_is_refused_with_a_sentence() {
    let refusal = |target: Ideal| {
        let mut target = target;
        let mut record = Record::default();
        let swept = sweep(&mut target, &QUICK, &mut record, &mut |_, _| Ok(()));
        match swept {
            Err(error) => error.to_string(),
            Ok(()) => fit(&record, "x").unwrap_err().to_string(),
        }
    };
    let ideal = || Ideal::new(10.0);
    let cases = [
        (
            Ideal {
                capacity: 0.0,
                ..ideal()
            },
            "less than one request a second",
        ),
        (
            Ideal {
                p95: |load| 900.0 - 800.0 * load,
                ..ideal()
            },
            "latency falls",
        ),
        (
            Ideal {
                p95: |_| 0.0,
                ..ideal()
            },
            "no read was seen",
        ),
        (
            Ideal {
                p95: |_| 50_000.0,
                ..ideal()
            },
            "above 20 ms",
        ),
        (Ideal::new(5000.0), "a write would cost"),
    ];
    for (target, part) in cases {
        let said = refusal(target);
        assert!(said.contains(part), "{said}");
        assert!(!said.contains('\n'));
    }
}

#[test]
fn shares_that_disagree_are_refused() {
    let mut record = measure(&mut Ideal::new(10.0), &QUICK);
    // Whatever a write costs: 95 % reads are slower than 50 %, and 75 % too.
    for m in &mut record.measurements {
        let factor = match m.reads {
            95 | 75 => 0.1,
            _ => 1.0,
        };
        m.seen.iops *= factor;
        m.offered = m.offered.map(|rate| rate * factor);
    }
    let said = fit(&record, "x").unwrap_err().to_string();
    assert!(said.contains("differ by a factor"), "{said}");
}

#[test]
fn an_interrupted_calibration_goes_on() {
    let directory = directory("resume");
    let out = directory.join("ideal.toml");
    let mut device = Ideal {
        fails_after: 40,
        ..Ideal::new(10.0)
    };
    let mut quiet = |_: &str| ();
    let first = calibrate(&mut device, &QUICK, &args(&out, false), &mut quiet);
    assert_eq!(first.unwrap_err().to_string(), "the device is gone");
    assert!(!out.exists());

    let again = calibrate(&mut device, &QUICK, &args(&out, false), &mut quiet);
    let said = again.unwrap_err().to_string();
    assert!(said.contains("--resume"), "{said}");
    let other = calibrate(&mut Ideal::new(7.0), &QUICK, &args(&out, true), &mut quiet);
    let said = other.unwrap_err().to_string();
    assert!(said.contains("is of another device"), "{said}");

    device.fails_after = usize::MAX;
    let (record, fit) = calibrate(&mut device, &QUICK, &args(&out, true), &mut quiet).unwrap();
    assert_eq!(device.jobs, record.measurements.len(), "none was repeated");
    // Digits are lost in the state file, the 16th ones.
    let whole = fit_of(&measure(&mut Ideal::new(10.0), &QUICK));
    assert!((fit.write_cost - whole.write_cost).abs() < 1e-6);
    let text = std::fs::read_to_string(&out).unwrap();
    assert_eq!(DeviceModel::from_toml(&text).unwrap(), fit.model);
    assert!(!state::path(&out).exists());

    std::fs::write(state::path(&out), "{}").unwrap();
    let broken = calibrate(&mut device, &QUICK, &args(&out, true), &mut quiet);
    let said = broken.unwrap_err().to_string();
    assert!(said.contains("no state file"), "{said}");
    std::fs::remove_dir_all(directory).unwrap();
}

/// Calibrate a preset, then hold the model against another device of the same
/// preset.
fn matches_the_device(preset: &str, write_cost: std::ops::Range<f64>) {
    let mut target = Modelled::preset(preset, 1).unwrap();
    let record = measure(&mut target, &QUICK);
    let fit = fit(&record, preset).unwrap();
    assert!(
        write_cost.contains(&fit.write_cost),
        "a write costs {}",
        fit.write_cost
    );
    let first = fit.rows.first().unwrap().p95_us;
    assert!(first <= 500, "nothing is promised below {first} us");
    let svg = plot::svg(&record, &fit);
    assert!(svg.len() < 64 << 10 && svg.ends_with("</svg>\n"));
    let text = to_text(&fit, Path::new("x.toml"));
    assert!(text.contains("ctrl=user model=linear"), "{text}");

    let model = &fit.model;
    let mut other = Modelled::new(Params::preset(preset).unwrap(), 99).unwrap();
    let mut seed = 1000;
    let mut p95_at = |reads: u8, p95_us, factor: f64| {
        seed += 1;
        let cost = |op| model.cost(op, 4096) as f64;
        let share = f64::from(reads) / 100.0;
        let average = share * cost(Op::Read) + (1.0 - share) * cost(Op::Write);
        let tokens = model.rate(p95_us, reads == 100).unwrap() as f64;
        let seen = other
            .run(&Job {
                reads,
                bytes: 4096,
                arrival: Arrival::Rate(tokens / average * factor),
                warm_up: 0.1,
                measure: 0.3,
                seed,
            })
            .unwrap();
        (seen.p95_us, text_of(reads, p95_us, factor, seen.p95_us))
    };
    for p95_us in [500, 1000] {
        let mut breaks = Vec::new();
        for reads in [100, 95, 90, 75, 50] {
            // 10 % less holds with any share of reads.
            let (p95, what) = p95_at(reads, p95_us, 0.9);
            assert!(p95 <= f64::from(p95_us), "{preset}: {what}");
            // 10 % more does not, for the share that is the hardest.
            let (p95, what) = p95_at(reads, p95_us, 1.1);
            if p95 > f64::from(p95_us) {
                breaks.push(what);
            }
        }
        assert!(!breaks.is_empty(), "{preset}: {p95_us} us: could do more");
    }
}

fn text_of(reads: u8, p95_us: u32, factor: f64, seen: f64) -> String {
    format!("{factor} of the rate for {p95_us} us with {reads} % reads: p95 {seen:.0} us")
}

#[test]
fn the_million_preset_is_recovered() {
    // ReFlex's sample says 10.
    matches_the_device("million", 8.0..13.0);
}

#[test]
fn the_p3600_preset_is_recovered() {
    matches_the_device("p3600", 8.0..14.0);
}

#[test]
fn a_file_is_measured() {
    let directory = directory("file");
    let path = directory.join("disk");
    std::fs::File::create(&path)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    let opened = Block::open(&path);
    let mut target = match opened {
        Ok(block) => block.with_window(0.05),
        Err(error) => {
            println!("not measured: {error}");
            std::fs::remove_dir_all(directory).unwrap();
            return;
        }
    };
    for arrival in [Arrival::Depth(4), Arrival::Rate(200.0)] {
        let job = Job {
            reads: 50,
            bytes: 4096,
            arrival,
            warm_up: 0.01,
            measure: 0.2,
            seed: 1,
        };
        let seen = target.run(&job).unwrap();
        assert!(
            seen.iops > 1.0 && seen.reads > 0 && seen.p95_us > 0.0,
            "{seen:?}"
        );
        assert!(seen.p50_us <= seen.p95_us && seen.p95_us <= seen.p99_us);
    }
    std::fs::remove_dir_all(directory).unwrap();
    let small = Block::open(Path::new("/proc/self/status"));
    assert!(small.is_err());
}
