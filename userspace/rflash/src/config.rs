// SPDX-License-Identifier: GPL-2.0-only
//! The files in /etc/rflash that `connect-all` reads.
//!
//! A file is TOML: any number of `[[connect]]` tables, whose keys are the long
//! options of `rflash connect`, and a table `[defaults]` with keys for all of
//! them in that file. In keys, `_` and `-` are the same.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Error, one_line};
use crate::options::{ConnectOptions, KEYS, Problem};
use crate::uapi;

/// Where the files are.
pub const DIRECTORY: &str = "/etc/rflash";
/// The server's own configuration, which is in the same place.
const NOT_OURS: &str = "rflashd.toml";

/// One `[[connect]]`.
#[derive(Clone, Debug)]
pub struct Entry {
    pub options: ConnectOptions,
    file: PathBuf,
    /// Line of the table, and of each key in it.
    line: usize,
    lines: Vec<(&'static str, usize)>,
}

impl Entry {
    /// Where and what, in front of what went wrong.
    pub fn problem(&self, problem: &Problem) -> Error {
        let line = self.lines.iter().rev().find(|(key, _)| *key == problem.key);
        let line = line.map_or(self.line, |(_, line)| *line);
        let file = self.file.display();
        match problem.key {
            "" => Error::new(format!("{file}:{line}: {}", problem.text)),
            key => Error::new(format!("{file}:{line}: {key}: {}", problem.text)),
        }
    }

    pub fn failure(&self, error: &Error) -> Error {
        Error::new(format!("{}:{}: {error}", self.file.display(), self.line))
    }
}

/// The files of a directory in the order of their names, or one file.
pub fn files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let failed = |e: std::io::Error| {
        let why = crate::netlink::message::errno_text(e.raw_os_error().unwrap_or(libc::EIO));
        Error::new(format!("{}: {why}", path.display()))
    };
    if !path.is_dir() {
        return match path.metadata() {
            Ok(_) => Ok(vec![path.to_path_buf()]),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && path == Path::new(DIRECTORY) => {
                Ok(Vec::new())
            }
            Err(e) => Err(failed(e)),
        };
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        let is_toml = file.extension().is_some_and(|e| e == "toml");
        if is_toml && file.file_name().is_none_or(|n| n != NOT_OURS) {
            found.push(file);
        }
    }
    found.sort();
    Ok(found)
}

/// Read a file. Every entry that is right is returned beside every error, so
/// that one mistake does not keep the others from being connected.
pub fn read(file: &Path) -> (Vec<Entry>, Vec<Error>) {
    match std::fs::read_to_string(file) {
        Ok(text) => parse(file, &text),
        Err(e) => {
            let why = match e.raw_os_error() {
                Some(errno) => crate::netlink::message::errno_text(errno),
                None => e.to_string(),
            };
            (
                Vec::new(),
                vec![Error::new(format!("{}: {why}", file.display()))],
            )
        }
    }
}

struct Reader<'a> {
    file: &'a Path,
    text: &'a str,
    errors: Vec<Error>,
}

type Table<'i> = DeTable<'i>;

impl Reader<'_> {
    fn line(&self, at: usize) -> usize {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        before.iter().filter(|&&b| b == b'\n').count() + 1
    }

    fn error(&mut self, at: usize, text: impl std::fmt::Display) {
        let line = self.line(at);
        self.errors.push(Error::new(format!(
            "{}:{line}: {text}",
            self.file.display()
        )));
    }
}

fn parse(file: &Path, text: &str) -> (Vec<Entry>, Vec<Error>) {
    let mut reader = Reader {
        file,
        text,
        errors: Vec::new(),
    };
    let document = match DeTable::parse(text) {
        Ok(document) => document,
        Err(e) => {
            let at = e.span().map_or(0, |s| s.start);
            reader.error(at, one_line(e.message()));
            return (Vec::new(), reader.errors);
        }
    };
    let mut defaults: Option<&Table<'_>> = None;
    let mut tables: Vec<&Spanned<DeValue<'_>>> = Vec::new();
    for (key, value) in document.get_ref() {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("defaults", DeValue::Table(table)) => defaults = Some(table),
            ("connect", DeValue::Array(array)) => tables.extend(array.iter()),
            ("defaults", _) => reader.error(key.span().start, "defaults: write it as [defaults]"),
            ("connect", _) => {
                reader.error(
                    key.span().start,
                    "connect: write it as [[connect]], with two brackets",
                );
            }
            (other, _) => reader.error(
                key.span().start,
                format!("{other}: no such table, [defaults] and [[connect]] are allowed"),
            ),
        }
    }
    let mut base = ConnectOptions {
        transport: "tcp".to_string(),
        trsvcid: uapi::TCP_PORT.to_string(),
        ..ConnectOptions::default()
    };
    let mut lines = Vec::new();
    let mut sound = true;
    if let Some(table) = defaults {
        sound = fill(&mut reader, table, &mut base, &mut lines);
    }
    let mut entries = Vec::new();
    for value in tables {
        let start = value.span().start;
        let DeValue::Table(table) = value.get_ref() else {
            reader.error(start, "connect: write it as [[connect]], with two brackets");
            continue;
        };
        let mut entry = Entry {
            options: base.clone(),
            file: file.to_path_buf(),
            line: reader.line(start),
            lines: lines.clone(),
        };
        let mut good = fill(&mut reader, table, &mut entry.options, &mut entry.lines);
        for (key, value) in [
            ("traddr", &entry.options.traddr),
            ("nqn", &entry.options.nqn),
        ] {
            if value.is_empty() && !entry.lines.iter().any(|(k, _)| *k == key) {
                reader.error(
                    start,
                    format!("{key}: missing, every [[connect]] needs one"),
                );
                good = false;
            }
        }
        if good && sound {
            entries.push(entry);
        }
    }
    (entries, reader.errors)
}

/// Put the keys of a table into options; true if all were right.
fn fill(
    reader: &mut Reader<'_>,
    table: &Table<'_>,
    options: &mut ConnectOptions,
    lines: &mut Vec<(&'static str, usize)>,
) -> bool {
    let mut good = true;
    for (key, value) in table {
        let name = key.get_ref().replace('_', "-");
        let at = key.span().start;
        let Some((known, _)) = KEYS.iter().find(|(k, _)| *k == name) else {
            let all: Vec<_> = KEYS.iter().map(|(k, _)| *k).collect();
            let text = format!(
                "{}: no such key, allowed are {}",
                key.get_ref(),
                all.join(", ")
            );
            reader.error(at, text);
            good = false;
            continue;
        };
        match set(options, known, value.get_ref()) {
            Ok(()) => lines.push((known, reader.line(at))),
            Err(want) => {
                let got = value.get_ref().type_str();
                reader.error(at, format!("{known}: this is of type {got}, give {want}"));
                good = false;
            }
        }
    }
    good
}

/// Set one key; or say what it takes.
fn set(o: &mut ConnectOptions, key: &str, value: &DeValue<'_>) -> Result<(), &'static str> {
    let string = || {
        value
            .as_str()
            .map(str::to_string)
            .ok_or("a string in quotes")
    };
    let number = || {
        let text = value.as_integer();
        let parsed = text.and_then(|i| i64::from_str_radix(i.as_str(), i.radix()).ok());
        parsed.ok_or("a whole number")
    };
    let switch = || value.as_bool().ok_or("true or false");
    match key {
        "transport" => o.transport = string()?,
        "traddr" => o.traddr = string()?,
        // Ports are numbers to most people.
        "trsvcid" => {
            o.trsvcid = match number() {
                Ok(port) => port.to_string(),
                Err(_) => string().map_err(|_| "a port of 1 to 65535")?,
            }
        }
        "nqn" => o.nqn = string()?,
        "host-traddr" => o.host_traddr = Some(string()?),
        "hostnqn" => o.hostnqn = Some(string()?),
        "hostid" => o.hostid = Some(string()?),
        "nr-io-queues" => o.nr_io_queues = Some(number()?),
        "queue-size" => o.queue_size = Some(number()?),
        "keep-alive-tmo" => o.keep_alive_tmo = Some(number()?),
        "reconnect-delay" => o.reconnect_delay = Some(number()?),
        "ctrl-loss-tmo" => o.ctrl_loss_tmo = Some(number()?),
        "fast-io-fail-tmo" => o.fast_io_fail_tmo = Some(number()?),
        "hdr-digest" => o.hdr_digest = switch()?,
        "data-digest" => o.data_digest = switch()?,
        "class" => o.tenant.class = Some(string()?),
        "slo-p95" => o.tenant.slo_p95 = Some(number()?),
        "slo-iops" => o.tenant.slo_iops = Some(number()?),
        "slo-read-pct" => o.tenant.slo_read_pct = Some(number()?),
        // A number of bytes, or with a unit.
        "slo-bs" => {
            o.tenant.slo_bs = Some(match number() {
                Ok(bytes) => bytes.to_string(),
                Err(_) => string().map_err(|_| "a size such as \"4k\"")?,
            })
        }
        "weight" => o.tenant.weight = Some(number()?),
        _ => return Err("a key that exists"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::tests::Machine;
    use proptest::prelude::*;

    fn read_text(text: &str) -> (Vec<Entry>, Vec<String>) {
        let (entries, errors) = parse(Path::new("a.toml"), text);
        (entries, errors.iter().map(Error::to_string).collect())
    }

    #[test]
    fn entries_with_defaults() {
        let (entries, errors) = read_text(
            "[defaults]\nhostnqn = \"nqn.2024-01.io.example:h\"\nctrl_loss_tmo = -1\n\
             [[connect]]\ntraddr = \"192.0.2.1\"\nnqn = \"nqn.a\"\n\
             [[connect]]\ntraddr = \"192.0.2.2\"\ntrsvcid = 4421\nnqn = \"nqn.b\"\n\
             ctrl-loss-tmo = 60\nhdr-digest = true\n",
        );
        assert_eq!(errors, [""; 0]);
        assert_eq!(entries.len(), 2);
        let o = &entries[0].options;
        assert_eq!((o.transport.as_str(), o.trsvcid.as_str()), ("tcp", "4420"));
        assert_eq!(o.ctrl_loss_tmo, Some(-1));
        let o = &entries[1].options;
        assert_eq!(
            (o.trsvcid.as_str(), o.ctrl_loss_tmo, o.hdr_digest),
            ("4421", Some(60), true)
        );
        assert_eq!(o.hostnqn.as_deref(), Some("nqn.2024-01.io.example:h"));
        let problem = Problem {
            key: "trsvcid",
            text: "port 0".to_string(),
        };
        assert_eq!(
            entries[1].problem(&problem).to_string(),
            "a.toml:9: trsvcid: port 0"
        );
        let problem = Problem {
            key: "queue-size",
            text: "odd".to_string(),
        };
        assert_eq!(
            entries[1].problem(&problem).to_string(),
            "a.toml:7: queue-size: odd"
        );
    }

    #[test]
    fn mistakes_name_line_and_key() {
        for (text, want) in [
            (
                "x = 1\n",
                "a.toml:1: x: no such table, [defaults] and [[connect]] are allowed",
            ),
            ("[[connect]\n", "a.toml:1:"),
            (
                "\n[connect]\ntraddr = \"a\"\n",
                "a.toml:2: connect: write it as [[connect]]",
            ),
            (
                "[[connect]]\nnqn = \"nqn.a\"\n",
                "a.toml:1: traddr: missing, every [[connect]] needs one",
            ),
            (
                "[[connect]]\ntraddr = \"a\"\nnqn = \"n\"\nqueues = 3\n",
                "a.toml:4: queues: no such key, allowed are transport, traddr,",
            ),
            (
                "[[connect]]\ntraddr = \"a\"\nnqn = \"n\"\nqueue-size = \"big\"\n",
                "a.toml:4: queue-size: this is of type string, give a whole number",
            ),
            (
                "[[connect]]\ntraddr = 7\nnqn = \"n\"\n",
                "a.toml:2: traddr: this is of type integer, give a string in quotes",
            ),
        ] {
            let (entries, errors) = read_text(text);
            assert!(entries.is_empty(), "{text}");
            assert!(errors[0].starts_with(want), "{text}: {errors:?}");
            assert_eq!(errors[0].lines().count(), 1);
        }
    }

    #[test]
    fn a_mistake_leaves_the_other_entries() {
        let (entries, errors) = read_text(
            "[[connect]]\ntraddr = \"a\"\nnqn = \"n\"\nbad = 1\n[[connect]]\ntraddr = \"b\"\nnqn = \"m\"\n",
        );
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].options.traddr, "b");
        assert_eq!(errors.len(), 1);
    }

    #[test]
    fn a_class_of_tenants() {
        let (entries, errors) = read_text(
            "[defaults]\nclass = \"lc\"\nslo-p95 = 500\nslo_iops = 20000\nslo-read-pct = 90\n\
             [[connect]]\ntraddr = \"192.0.2.1\"\nnqn = \"nqn.a\"\nslo-bs = 8192\n\
             [[connect]]\ntraddr = \"192.0.2.1\"\nnqn = \"nqn.b\"\nslo-bs = \"16k\"\nweight = 3\n",
        );
        assert_eq!(errors, [""; 0]);
        let check = |at: usize| {
            let entry = &entries[at];
            let made = entry.options.tenant.check();
            made.map_err(|p| entry.problem(&p).to_string())
        };
        assert!(check(0).unwrap().is_some());
        assert_eq!(entries[0].options.tenant.slo_bs.as_deref(), Some("8192"));
        assert_eq!(
            check(1).unwrap_err(),
            "a.toml:14: weight: this is for --class be"
        );
    }

    #[test]
    fn which_files() {
        let m = Machine::new(&[
            ("/e/b.toml", ""),
            ("/e/a.toml", ""),
            ("/e/rflashd.toml", ""),
            ("/e/hostid", ""),
        ]);
        let names = |found: Vec<PathBuf>| -> Vec<String> {
            found
                .iter()
                .map(|f| f.file_name().unwrap().to_string_lossy().into_owned())
                .collect()
        };
        assert_eq!(
            names(files(&m.system.path("/e")).unwrap()),
            ["a.toml", "b.toml"]
        );
        assert_eq!(
            names(files(&m.system.path("/e/b.toml")).unwrap()),
            ["b.toml"]
        );
        let error = files(&m.system.path("/none")).unwrap_err().to_string();
        assert!(
            error.ends_with("/none: no such file or directory"),
            "{error}"
        );
    }

    #[test]
    fn the_example_is_right() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../packaging/config/example.toml"
        );
        let (entries, errors) = read(Path::new(path));
        assert_eq!(errors, []);
        assert_eq!(entries.len(), 2);
        let m = Machine::new(&[("/sys/devices/system/cpu/online", "0-63")]);
        for entry in &entries {
            if let Err(problem) = entry.options.check(&m.system) {
                panic!("{}", entry.problem(&problem));
            }
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "[\\[\\]a-z\"=0-9.\n-]{0,80}") {
            let _ = read_text(&text);
            let _ = read_text(&format!("[[connect]]\n{text}"));
        }
    }
}
