// SPDX-License-Identifier: GPL-2.0-only
//! From text to tables.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::section::{Place, Section};
use super::value::Wrong;
use super::{Config, Device, Discovery, Limits, Namespace, Problems, Server, suggest};
use super::{Subsystem, Tenant, Timeouts, header};

/// Tables that may stand there once, and those that may stand there often.
const SINGLE: [&str; 4] = ["server", "limits", "timeouts", "discovery"];
const MANY: [&str; 3] = ["device", "subsystem", "tenant"];
/// The table inside another.
const NESTED: &str = "namespace";

/// Read the file and those of its `include` directory.
pub fn load(file: &Path) -> Result<Config, Problems> {
    let mut problems = Problems::default();
    let mut config = Config::default();
    read(file, true, &mut config, &mut problems);
    let beside = file.parent().unwrap_or(Path::new(""));
    let directory = beside.join(&config.server.include);
    for more in included(&directory, &mut problems) {
        read(&more, false, &mut config, &mut problems);
    }
    problems.or(config)
}

/// The *.toml of a directory in the order of their names. It may be missing.
fn included(directory: &Path, problems: &mut Problems) -> Vec<PathBuf> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Vec::new(),
        Err(e) => {
            problems.add(directory, 0, reason(&e));
            return Vec::new();
        }
    };
    let mut found: Vec<PathBuf> = entries
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "toml"))
        .collect();
    found.sort();
    found
}

/// The kernel's words without Rust's number.
fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error").unwrap_or(text.len());
    text.get(..end).unwrap_or(&text).to_lowercase()
}

fn read(file: &Path, first: bool, config: &mut Config, problems: &mut Problems) {
    match std::fs::read_to_string(file) {
        Ok(text) => parse(file, &text, first, config, problems),
        Err(e) => problems.add(file, 0, reason(&e)),
    }
}

struct Reader<'a> {
    file: Arc<PathBuf>,
    text: &'a str,
    problems: &'a mut Problems,
}

impl Reader<'_> {
    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        before.iter().filter(|&&b| b == b'\n').count() + 1
    }

    fn wrong(&mut self, at: usize, text: impl Into<String>) {
        let line = self.line(at);
        self.problems.add(&self.file, line, text);
    }

    /// One `[section]`.
    fn single<S: Section>(&mut self, at: usize, value: &DeValue<'_>) -> Option<S> {
        match value {
            DeValue::Table(table) => Some(self.fill(at, table, false, &[])),
            _ => {
                self.wrong(at, format!("{0}: write it as [{0}]", S::HEADER));
                None
            }
        }
    }

    /// The tables of a `[[section]]`.
    fn many<'v, 'i>(
        &mut self,
        name: &str,
        at: usize,
        value: &'v DeValue<'i>,
    ) -> Vec<(usize, &'v DeTable<'i>)> {
        let brackets = format!("{name}: write it as [[{name}]], with two brackets");
        let DeValue::Array(array) = value else {
            self.wrong(at, brackets);
            return Vec::new();
        };
        let mut tables = Vec::new();
        for item in array.iter() {
            match item.get_ref() {
                DeValue::Table(table) => tables.push((item.span().start, table)),
                _ => self.wrong(item.span().start, brackets.clone()),
            }
        }
        tables
    }

    /// Put the keys of a table into its type. Keys of `inside` are tables that
    /// the caller reads.
    fn fill<S: Section>(
        &mut self,
        at: usize,
        table: &DeTable<'_>,
        array: bool,
        inside: &[&str],
    ) -> S {
        let mut section = S::at(Place::new(&self.file, self.line(at)));
        for (key, value) in table.iter() {
            let name = key.get_ref().replace('_', "-");
            if inside.contains(&name.as_str()) {
                continue;
            }
            self.key(&mut section, key, &name, value.get_ref(), array);
        }
        for key in S::keys().iter().filter(|k| k.required) {
            let given = table
                .keys()
                .any(|k| k.get_ref().replace('_', "-") == key.name);
            if !given {
                let text = format!(
                    "{}: missing, every {} needs it",
                    key.name,
                    header::<S>(array)
                );
                self.wrong(at, text);
            }
        }
        section
    }

    fn key<S: Section>(
        &mut self,
        section: &mut S,
        key: &Spanned<std::borrow::Cow<'_, str>>,
        name: &str,
        value: &DeValue<'_>,
        array: bool,
    ) {
        let at = key.span().start;
        let Some(known) = S::NAMES.iter().find(|k| **k == name) else {
            let meant = match suggest::nearest(name, S::NAMES) {
                Some(best) => format!(", did you mean {best}? allowed are "),
                None => "; allowed are ".into(),
            };
            let text = format!(
                "{}: no such key in {}{meant}{}",
                key.get_ref(),
                header::<S>(array),
                S::NAMES.join(", ")
            );
            return self.wrong(at, text);
        };
        let line = self.line(at);
        section.place_mut().note(known, line);
        let Err(wrong) = section.set(known, value) else {
            return;
        };
        let keys = S::keys();
        let allowed = keys.iter().find(|k| k.name == *known);
        let allowed = allowed.map_or(String::new(), |k| k.allowed.clone());
        let text = match wrong {
            Wrong::Type => {
                let got = value.type_str();
                format!("{known}: this is of type {got}, give {allowed}")
            }
            Wrong::Value(why) if why.ends_with('?') => {
                format!("{known}: {why} Give {allowed}")
            }
            Wrong::Value(why) => format!("{known}: {why}, give {allowed}"),
        };
        self.wrong(at, text);
    }

    fn subsystem(&mut self, at: usize, table: &DeTable<'_>) -> (Subsystem, Vec<Namespace>) {
        let subsystem: Subsystem = self.fill(at, table, true, &[NESTED]);
        let mut namespaces = Vec::new();
        for (key, value) in table.iter().filter(|(k, _)| k.get_ref() == NESTED) {
            let name = Namespace::HEADER;
            for (at, inner) in self.many(name, key.span().start, value.get_ref()) {
                namespaces.push(self.fill(at, inner, true, &[]));
            }
        }
        (subsystem, namespaces)
    }
}

/// Add what a text says to `config`. `first`: it is the main file, which alone
/// has the single tables.
pub(super) fn parse(
    file: &Path,
    text: &str,
    first: bool,
    config: &mut Config,
    problems: &mut Problems,
) {
    let mut reader = Reader {
        file: Arc::new(file.to_path_buf()),
        text,
        problems,
    };
    let document = match DeTable::parse(text) {
        Ok(document) => document,
        Err(e) => {
            let at = e.span().map_or(0, |s| s.start);
            let message = e.message().split_whitespace().collect::<Vec<_>>().join(" ");
            return reader.wrong(at, message);
        }
    };
    for (key, value) in document.get_ref().iter() {
        let (at, value) = (key.span().start, value.get_ref());
        match key.get_ref().as_ref() {
            name if SINGLE.contains(&name) && !first => {
                reader.wrong(at, format!("{name}: [{name}] stands in the main file only"));
            }
            "server" => set::<Server>(&mut reader, at, value, &mut config.server),
            "limits" => set::<Limits>(&mut reader, at, value, &mut config.limits),
            "timeouts" => set::<Timeouts>(&mut reader, at, value, &mut config.timeouts),
            "discovery" => set::<Discovery>(&mut reader, at, value, &mut config.discovery),
            "device" => {
                for (at, table) in reader.many("device", at, value) {
                    config
                        .devices
                        .push(reader.fill::<Device>(at, table, true, &[]));
                }
            }
            "subsystem" => {
                for (at, table) in reader.many("subsystem", at, value) {
                    let subsystem = reader.subsystem(at, table);
                    config.subsystems.push(subsystem);
                }
            }
            "tenant" => {
                for (at, table) in reader.many("tenant", at, value) {
                    config
                        .tenants
                        .push(reader.fill::<Tenant>(at, table, true, &[]));
                }
            }
            other => reader.wrong(at, no_such_table(other)),
        }
    }
}

fn set<S: Section>(reader: &mut Reader<'_>, at: usize, value: &DeValue<'_>, to: &mut S) {
    if let Some(section) = reader.single(at, value) {
        *to = section;
    }
}

fn no_such_table(name: &str) -> String {
    let known: Vec<&str> = SINGLE.iter().chain(&MANY).copied().collect();
    let meant = match suggest::nearest(name, &known) {
        Some(best) => format!(", did you mean {best}? allowed are "),
        None => "; allowed are ".into(),
    };
    let single = SINGLE.map(|n| format!("[{n}]")).join(", ");
    let many = MANY.map(|n| format!("[[{n}]]")).join(", ");
    format!("{name}: no such table{meant}{single}, {many}")
}
