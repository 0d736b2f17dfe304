// SPDX-License-Identifier: GPL-2.0-only
//! What stands behind a key: how it is read, what is allowed, how it is shown.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use nvme_wire::nqn;
use toml::de::DeValue;

/// Why a value is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Another type: a number where a string should be.
    Type,
    /// The right type; what is wrong with it.
    Value(String),
}

/// A type that a key can have. Its text says everything that users need: the
/// errors and the reference are made of it.
pub trait Value: Sized {
    /// What may be given, as the end of a sentence that begins with "give".
    fn allowed() -> String;
    fn read(value: &DeValue<'_>) -> Result<Self, Wrong>;
    /// In TOML; `None` when nothing is set.
    fn show(&self) -> Option<String>;
}

fn text<'v>(value: &'v DeValue<'_>) -> Result<&'v str, Wrong> {
    value.as_str().ok_or(Wrong::Type)
}

fn quoted(text: &str) -> Option<String> {
    // A JSON string is a basic string of TOML.
    Some(serde_json::Value::from(text).to_string())
}

fn number(value: &DeValue<'_>) -> Result<u64, Wrong> {
    let integer = value.as_integer().ok_or(Wrong::Type)?;
    u64::from_str_radix(integer.as_str(), integer.radix())
        .map_err(|_| Wrong::Value(format!("{} is out of range", integer.as_str())))
}

impl<T: Value> Value for Option<T> {
    fn allowed() -> String {
        T::allowed()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, Wrong> {
        T::read(value).map(Some)
    }

    fn show(&self) -> Option<String> {
        self.as_ref().and_then(T::show)
    }
}

impl Value for bool {
    fn allowed() -> String {
        "true or false".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, Wrong> {
        value.as_bool().ok_or(Wrong::Type)
    }

    fn show(&self) -> Option<String> {
        Some(self.to_string())
    }
}

/// A whole number in a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number<const MIN: u64, const MAX: u64>(pub u64);

impl<const MIN: u64, const MAX: u64> Value for Number<MIN, MAX> {
    fn allowed() -> String {
        format!("a whole number from {MIN} to {MAX}")
    }

    fn read(value: &DeValue<'_>) -> Result<Self, Wrong> {
        let n = number(value)?;
        match (MIN..=MAX).contains(&n) {
            true => Ok(Number(n)),
            false => Err(Wrong::Value(format!("{n} is out of range"))),
        }
    }

    fn show(&self) -> Option<String> {
        Some(self.0.to_string())
    }
}

/// A time in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seconds(pub u64);

impl Seconds {
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.0)
    }
}

impl Value for Seconds {
    fn allowed() -> String {
        "seconds, 1 to 3600".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, Wrong> {
        Number::<1, 3600>::read(value).map(|n| Seconds(n.0))
    }

    fn show(&self) -> Option<String> {
        Some(self.0.to_string())
    }
}

/// A number of bytes: a number, or a string with a unit of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

const UNITS: [(&str, u32); 9] = [
    ("KiB", 10),
    ("MiB", 20),
    ("GiB", 30),
    ("TiB", 40),
    ("K", 10),
    ("M", 20),
    ("G", 30),
    ("T", 40),
    ("B", 0),
];

impl Bytes {
    pub fn parse(text: &str) -> Option<Bytes> {
        let (digits, shift) = UNITS
            .iter()
            .find_map(|(unit, shift)| text.strip_suffix(unit).map(|d| (d, *shift)))
            .unwrap_or((text, 0));
        let n: u64 = digits.trim().parse().ok()?;
        let bytes = n.checked_shl(shift).filter(|b| b >> shift == n)?;
        Some(Bytes(bytes))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, shift) in UNITS.iter().take(4).rev() {
            let size = 1_u64 << shift;
            if self.0 >= size && self.0 % size == 0 {
                return write!(f, "{} {unit}", self.0 >> shift);
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl Value for Bytes {
    fn allowed() -> String {
        "bytes, or a string such as \"512 MiB\", with KiB, MiB, GiB or TiB".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, Wrong> {
        if value.as_integer().is_some() {
            return number(value).map(Bytes);
        }
        let text = text(value)?;
        Bytes::parse(text).ok_or_else(|| Wrong::Value(format!("\"{text}\" is no size")))
    }

    fn show(&self) -> Option<String> {
        quoted(&self.to_string())
    }
}

/// What something is called: in logs, metrics, and on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Name(pub String);

impl Name {
    pub fn check(text: &str) -> bool {
        let good = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        (1..=64).contains(&text.len()) && text.chars().all(good)
    }
}

impl Value for Name {
    fn allowed() -> String {
        "1 to 64 letters, digits, dots, slashes, - or _, in quotes".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, Wrong> {
        let text = text(value)?;
        match Name::check(text) {
            true => Ok(Name(text.into())),
            false => Err(Wrong::Value(format!("\"{text}\" is no name"))),
        }
    }

    fn show(&self) -> Option<String> {
        quoted(&self.0)
    }
}

/// The NVMe Qualified Name of a host or a subsystem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nqn(pub String);

impl Value for Nqn {
    fn allowed() -> String {
        "an NVMe Qualified Name such as \"nqn.2024-01.io.example:flash1\"".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, Wrong> {
        let text = text(value)?;
        match nqn::check(text) {
            Ok(()) => Ok(Nqn(text.into())),
            Err(e) => Err(Wrong::Value(format!("\"{text}\": {e}"))),
        }
    }

    fn show(&self) -> Option<String> {
        quoted(&self.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uuid(pub [u8; 16]);

impl Value for Uuid {
    fn allowed() -> String {
        "a UUID such as \"01234567-89ab-cdef-0123-456789abcdef\"".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, Wrong> {
        let text = text(value)?;
        let parsed = nqn::parse_uuid(text).filter(|u| u != &[0; 16]);
        let wrong = || Wrong::Value(format!("\"{text}\" is no UUID"));
        parsed.map(Uuid).ok_or_else(wrong)
    }

    fn show(&self) -> Option<String> {
        quoted(&nqn::format_uuid(&self.0))
    }
}

/// Printable ASCII of at most `MAX` characters, as Identify has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label<const MAX: usize>(pub String);

impl<const MAX: usize> Value for Label<MAX> {
    fn allowed() -> String {
        format!("1 to {MAX} printable ASCII characters, in quotes")
    }

    fn read(value: &DeValue<'_>) -> Result<Self, Wrong> {
        let text = text(value)?;
        let good = text.chars().all(|c| (' '..='~').contains(&c)) && !text.trim().is_empty();
        match good && text.len() <= MAX {
            true => Ok(Label(text.into())),
            false => Err(Wrong::Value(format!("\"{text}\" does not fit"))),
        }
    }

    fn show(&self) -> Option<String> {
        quoted(&self.0)
    }
}

impl Value for PathBuf {
    fn allowed() -> String {
        "a path in quotes".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, Wrong> {
        match text(value)? {
            text if text.contains('\0') => Err(Wrong::Value("a path has no NUL in it".into())),
            text => Ok(PathBuf::from(text)),
        }
    }

    fn show(&self) -> Option<String> {
        quoted(&self.display().to_string())
    }
}

/// The name of a device of this file, or the path of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceRef(pub String);

impl Value for DeviceRef {
    fn allowed() -> String {
        "the name of a [[device]], or the path of a block device or file, beginning with /".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, Wrong> {
        let text = text(value)?;
        let path = text.starts_with('/') && !text.contains('\0');
        match path || Name::check(text) {
            true => Ok(DeviceRef(text.into())),
            false => Err(Wrong::Value(format!("\"{text}\" is neither"))),
        }
    }

    fn show(&self) -> Option<String> {
        quoted(&self.0)
    }
}

impl Value for SocketAddr {
    fn allowed() -> String {
        "an address and a port such as \"192.0.2.1:4420\" or \"[2001:db8::1]:4420\"".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, Wrong> {
        let text = text(value)?;
        let wrong = || Wrong::Value(format!("\"{text}\" is no address with a port"));
        let address: SocketAddr = text.parse().map_err(|_| wrong())?;
        match address.port() {
            0 => Err(Wrong::Value("port 0 is nobody's".into())),
            _ => Ok(address),
        }
    }

    fn show(&self) -> Option<String> {
        quoted(&self.to_string())
    }
}

impl Value for std::net::IpAddr {
    fn allowed() -> String {
        "an address such as \"192.0.2.1\" or \"2001:db8::1\"".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, Wrong> {
        let text = text(value)?;
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        bare.parse()
            .map_err(|_| Wrong::Value(format!("\"{text}\" is no address")))
    }

    fn show(&self) -> Option<String> {
        quoted(&self.to_string())
    }
}

/// CPUs, in the kernel's list format. Empty is all that the server may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(pub Vec<u32>);

/// No machine has more.
const CPU_MAX: u32 = 8191;

impl CpuSet {
    pub fn parse(text: &str) -> Option<CpuSet> {
        let mut cpus = Vec::new();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            if first > last || last > CPU_MAX {
                return None;
            }
            cpus.extend(first..=last);
        }
        cpus.sort_unstable();
        cpus.dedup();
        Some(CpuSet(cpus))
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut comma = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if(|n| *n == last + 1) {
                last = next;
            }
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

impl Value for CpuSet {
    fn allowed() -> String {
        "a list of CPUs such as \"0-3,8\"; \"\" is all that the server may use".into()
    }

    fn read(value: &DeValue<'_>) -> Result<Self, Wrong> {
        let text = text(value)?;
        CpuSet::parse(text).ok_or_else(|| Wrong::Value(format!("\"{text}\" is no list of CPUs")))
    }

    fn show(&self) -> Option<String> {
        quoted(&self.to_string())
    }
}

impl<T: Value> Value for Vec<T> {
    fn allowed() -> String {
        format!("a list in brackets of: {}", T::allowed())
    }

    fn read(value: &DeValue<'_>) -> Result<Self, Wrong> {
        let items = value.as_array().ok_or(Wrong::Type)?;
        items
            .iter()
            .map(|v| match T::read(v.get_ref()) {
                Err(Wrong::Type) => Err(Wrong::Value(format!(
                    "{} in the list",
                    v.get_ref().type_str()
                ))),
                other => other,
            })
            .collect()
    }

    fn show(&self) -> Option<String> {
        let items: Vec<String> = self.iter().filter_map(T::show).collect();
        Some(format!("[{}]", items.join(", ")))
    }
}

/// One of a few words.
macro_rules! words {
    ($(#[doc = $about:literal])* pub enum $name:ident { $($variant:ident = $word:literal),* $(,)? }) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($variant),* }

        impl $name {
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }
        }

        impl Value for $name {
            fn allowed() -> String {
                Self::WORDS.iter().map(|w| format!("\"{w}\"")).collect::<Vec<_>>().join(", ")
            }

            fn read(value: &DeValue<'_>) -> Result<Self, Wrong> {
                match text(value)? {
                    $($word => Ok(Self::$variant),)*
                    other => Err(Wrong::Value(super::suggest::unknown(other, Self::WORDS))),
                }
            }

            fn show(&self) -> Option<String> {
                quoted(self.word())
            }
        }
    };
}

words! {
    /// How much is logged.
    pub enum LogLevel {
        Error = "error",
        Warn = "warn",
        Info = "info",
        Debug = "debug",
        Trace = "trace",
    }
}

words! {
    /// How it is logged.
    pub enum LogFormat {
        Text = "text",
        Json = "json",
    }
}

words! {
    /// What is promised to a tenant.
    pub enum ClassWord {
        LatencyCritical = "lc",
        BestEffort = "be",
    }
}

words! {
    /// A modelled device.
    pub enum Preset {
        P3600 = "p3600",
        Million = "million",
    }
}

/// The cost model of a device: a built-in one, or the file that `rflash
/// calibrate` wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CostModel {
    Preset(String),
    File(PathBuf),
}

/// Names of built-in cost models.
pub const COST_MODELS: [&str; 3] = ["p3600", "million", "aws-i3"];

impl Value for CostModel {
    fn allowed() -> String {
        let names = COST_MODELS.map(|n| format!("\"{n}\"")).join(", ");
        format!("{names}, or the path of a file that `rflash calibrate` wrote, beginning with /")
    }

    fn read(value: &DeValue<'_>) -> Result<Self, Wrong> {
        match text(value)? {
            path if path.starts_with('/') && !path.contains('\0') => {
                Ok(CostModel::File(path.into()))
            }
            name if COST_MODELS.contains(&name) => Ok(CostModel::Preset(name.into())),
            name => Err(Wrong::Value(super::suggest::unknown(name, &COST_MODELS))),
        }
    }

    fn show(&self) -> Option<String> {
        match self {
            CostModel::Preset(name) => quoted(name),
            CostModel::File(path) => path.show(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes() {
        for (text, want) in [
            ("4096", Some(4096)),
            ("4 KiB", Some(4096)),
            ("1GiB", Some(1 << 30)),
            ("2T", Some(2 << 40)),
            ("17179869184 GiB", None),
            ("1 GB", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(Bytes::parse(text), want.map(Bytes), "{text}");
        }
        assert_eq!(Bytes(3 << 30).to_string(), "3 GiB");
        assert_eq!(Bytes(1000).to_string(), "1000 B");
    }

    #[test]
    fn cpu_lists() {
        for (text, want) in [
            ("", Some("")),
            ("0-3,8", Some("0-3,8")),
            ("3, 1,2", Some("1-3")),
            ("0,0", Some("0")),
            ("3-1", None),
            ("a", None),
            ("0-4294967295", None),
        ] {
            let got = CpuSet::parse(text).map(|s| s.to_string());
            assert_eq!(got.as_deref(), want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read_again(bytes: u64, cpus in prop::collection::vec(0_u32..200, 0..20)) {
            prop_assert_eq!(Bytes::parse(&Bytes(bytes).to_string()), Some(Bytes(bytes)));
            let mut set = cpus.clone();
            set.sort_unstable();
            set.dedup();
            let set = CpuSet(set);
            prop_assert_eq!(CpuSet::parse(&set.to_string()), Some(set));
        }
    }
}
