// SPDX-License-Identifier: GPL-2.0-only
//! The configuration: what can be said, how it is read, and what it comes to.
//!
//! [`load`] reads the file and those beside it, [`Plan::of`] checks it as a
//! whole. Nothing is opened by either, so that a plan which can't work is told
//! from one that can before anything has changed. All mistakes are reported,
//! each with its file and line.

mod document;
mod plan;
pub mod reference;
pub(crate) mod section;
mod suggest;
mod types;
pub mod value;

use std::fmt;
use std::path::{Path, PathBuf};

pub use document::load;
pub use plan::{Export, Medium, Part, Plan, PlannedDevice, Promise};
pub use section::{Key, Place, Section, When};
pub use types::{Device, Discovery, Limits, Namespace, Server, Subsystem, Tenant, Timeouts};

/// Where the file is.
pub const FILE: &str = "/etc/rflash/rflashd.toml";

/// All that the files say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    pub server: Server,
    pub limits: Limits,
    pub timeouts: Timeouts,
    pub discovery: Discovery,
    pub devices: Vec<Device>,
    pub subsystems: Vec<(Subsystem, Vec<Namespace>)>,
    pub tenants: Vec<Tenant>,
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    pub file: PathBuf,
    /// 0: the file as a whole.
    pub line: usize,
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file.display(), self.text),
            line => write!(f, "{}:{line}: {}", self.file.display(), self.text),
        }
    }
}

/// All mistakes, in the order of files and lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    pub fn add(&mut self, file: &Path, line: usize, text: impl Into<String>) {
        self.0.push(Problem {
            file: file.to_path_buf(),
            line,
            text: text.into(),
        });
    }

    /// A mistake at a key of a table.
    pub fn at(&mut self, place: &Place, key: &str, text: impl fmt::Display) {
        let text = match key {
            "" => text.to_string(),
            key => format!("{key}: {text}"),
        };
        self.add(place.file(), place.line_of(key), text);
    }

    /// The value if there is no mistake.
    pub fn or<T>(mut self, value: T) -> Result<T, Problems> {
        self.0.sort();
        self.0.dedup();
        match self.0.is_empty() {
            true => Ok(value),
            false => Err(self),
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.0.iter().map(Problem::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Problems {}

impl Config {
    /// The configuration in force, every key with its value: a file that means
    /// the same.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        table(&mut out, &self.server, false);
        table(&mut out, &self.limits, false);
        table(&mut out, &self.timeouts, false);
        table(&mut out, &self.discovery, false);
        for device in &self.devices {
            table(&mut out, device, true);
        }
        for (subsystem, namespaces) in &self.subsystems {
            table(&mut out, subsystem, true);
            for namespace in namespaces {
                table(&mut out, namespace, true);
            }
        }
        for tenant in &self.tenants {
            table(&mut out, tenant, true);
        }
        out
    }
}

fn table<S: Section>(out: &mut String, section: &S, array: bool) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.push_str(&header::<S>(array));
    out.push('\n');
    for (key, value) in section.show() {
        out.push_str(&format!("{key} = {value}\n"));
    }
}

/// `[server]` or `[[device]]`.
fn header<S: Section>(array: bool) -> String {
    match array {
        true => format!("[[{}]]", S::HEADER),
        false => format!("[{}]", S::HEADER),
    }
}

#[cfg(test)]
mod tests;
