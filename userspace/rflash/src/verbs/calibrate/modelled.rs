// SPDX-License-Identifier: GPL-2.0-only
//! A modelled device in virtual time: an hour of measurements in seconds.

use flash_model::load::{self, Load, Pattern};
use flash_model::{Device, Nanos, Params, Precondition};

use super::target::{Arrival, Job, Seen, Target};
use crate::error::Error;

/// Until the write buffer of any preset is empty.
const REST: Nanos = 300_000_000;

pub struct Modelled {
    device: Device,
    now: Nanos,
    seed: u64,
}

impl Modelled {
    /// A preset of the flash model.
    ///
    /// # Errors
    /// An unknown preset.
    pub fn preset(name: &str, seed: u64) -> Result<Modelled, Error> {
        let Some(params) = Params::preset(name) else {
            let names = Params::PRESETS.join(", ");
            let text = format!("--model: {name:?} is no preset: there are {names}");
            return Err(Error::new(text));
        };
        Modelled::new(params, seed)
    }

    /// Any device.
    ///
    /// # Errors
    /// Parameters that make no sense.
    pub fn new(params: Params, seed: u64) -> Result<Modelled, Error> {
        let mut device = Device::new(params, seed).map_err(Error::new)?;
        device.precondition(Precondition::Random);
        Ok(Modelled {
            device,
            now: 0,
            seed,
        })
    }
}

impl Target for Modelled {
    fn identity(&self) -> String {
        // All of it: a preset may change between two versions.
        format!("model {:?} seed {}", self.device.params(), self.seed)
    }

    fn name(&self) -> String {
        self.device.params().name.clone()
    }

    fn precondition(&mut self, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
        say("preconditioning the model");
        self.device.precondition(Precondition::Random);
        Ok(())
    }

    fn run(&mut self, job: &Job) -> Result<Seen, Error> {
        let ns = |seconds: f64| (seconds * 1e9) as Nanos;
        let load = Load {
            reads: f64::from(job.reads) / 100.0,
            bytes: job.bytes,
            pattern: Pattern::Random,
            arrival: match job.arrival {
                Arrival::Rate(rate) => load::Arrival::Rate(rate),
                Arrival::Depth(depth) => load::Arrival::Depth(depth),
            },
            warm_up: ns(job.warm_up),
            measure: ns(job.measure),
            seed: job.seed,
        };
        let seen = load::run(&mut self.device, self.now, &load);
        self.now = seen.end + REST;
        let us = |q| seen.reads.quantile(q).map_or(0.0, |ns| ns as f64 / 1e3);
        Ok(Seen {
            iops: seen.iops,
            p50_us: us(0.5),
            p95_us: us(0.95),
            p99_us: us(0.99),
            reads: seen.reads.count() as u64,
        })
    }
}
