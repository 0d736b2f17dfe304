// SPDX-License-Identifier: GPL-2.0-only
//! The model as TOML: what `rflash calibrate` writes and rflashd reads.

use std::fmt::{self, Write as _};
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{DeviceModel, ModelError, Point};
use crate::tenant::Tokens;

const KEYS: &[&str] = &[
    "name",
    "page",
    "read",
    "write",
    "read-only-read",
    "flush",
    "discard",
    "max",
    "point",
];
const POINT_KEYS: &[&str] = &["p95-us", "mixed", "read-only"];

/// What is wrong with a model's text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextError {
    /// From 1.
    pub line: usize,
    /// Empty when the text is not TOML.
    pub key: String,
    pub what: String,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            write!(f, "line {}: {}", self.line, self.what)
        } else {
            write!(f, "line {}: {}: {}", self.line, self.key, self.what)
        }
    }
}

impl std::error::Error for TextError {}

impl DeviceModel {
    /// The text that [`DeviceModel::from_toml`] reads.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = String::from(
            "# Cost model of a flash device. 100 tokens are one page read of the reference device;\n\
             # a point says how many tokens a second the device bears at that p95 read latency.\n",
        );
        let head = [
            ("page", i64::from(self.page)),
            ("read", self.read),
            ("write", self.write),
            ("read-only-read", self.read_only_read),
            ("flush", self.flush),
            ("discard", self.discard),
            ("max", i64::try_from(self.max).unwrap_or(i64::MAX)),
        ];
        // Writing to a String cannot fail.
        let _ = writeln!(text, "name = {}", quoted(&self.name));
        for (key, value) in head {
            let _ = writeln!(text, "{key} = {value}");
        }
        for point in &self.curve {
            let _ = writeln!(
                text,
                "\n[[point]]\np95-us = {}\nmixed = {}\nread-only = {}",
                point.p95_us, point.mixed, point.read_only
            );
        }
        text
    }

    /// Reads and checks a model. Without them, `page` is 4096, `read` 100,
    /// `read-only-read` as `read`, `flush` and `discard` as `write`.
    ///
    /// # Errors
    ///
    /// The first fault, with its line and key.
    pub fn from_toml(text: &str) -> Result<DeviceModel, TextError> {
        let reader = Reader { text };
        let table = DeTable::parse(text).map_err(|error| TextError {
            line: reader.line(error.span().unwrap_or(0..0)),
            key: String::new(),
            what: error.message().to_owned(),
        })?;
        let top = table.get_ref();
        reader.only(top, KEYS)?;
        let read = reader.integer(top, "read", Some(100))?;
        let write = reader.integer(top, "write", None)?;
        let model = DeviceModel {
            name: reader.string(top, "name")?,
            page: reader.narrow(top, "page", Some(4096))?,
            read,
            write,
            read_only_read: reader.integer(top, "read-only-read", Some(read))?,
            flush: reader.integer(top, "flush", Some(write))?,
            discard: reader.integer(top, "discard", Some(write))?,
            max: reader.rate(top, "max")?,
            curve: reader.curve(top)?,
        };
        model.check().map_err(|error| reader.place(top, &error))?;
        Ok(model)
    }
}

struct Reader<'t> {
    text: &'t str,
}

impl Reader<'_> {
    fn line(&self, span: Range<usize>) -> usize {
        let before = self.text.as_bytes().iter().take(span.start);
        before.filter(|byte| **byte == b'\n').count() + 1
    }

    fn wrong(&self, span: Range<usize>, key: &str, what: impl Into<String>) -> TextError {
        TextError {
            line: self.line(span),
            key: key.to_owned(),
            what: what.into(),
        }
    }

    /// No other keys than these.
    fn only(&self, table: &DeTable<'_>, keys: &[&str]) -> Result<(), TextError> {
        let known = |key: &&Spanned<_>| {
            let key: &std::borrow::Cow<'_, str> = key.get_ref();
            !keys.contains(&key.as_ref())
        };
        match table.keys().find(known) {
            Some(key) => {
                let what = format!("is not a key here; the keys are {}", keys.join(", "));
                Err(self.wrong(key.span(), key.get_ref(), what))
            }
            None => Ok(()),
        }
    }

    fn string(&self, table: &DeTable<'_>, key: &str) -> Result<String, TextError> {
        let value = self.needed(table, key)?;
        let text = value.get_ref().as_str().map(ToOwned::to_owned);
        text.ok_or_else(|| self.wrong(value.span(), key, "is not a string"))
    }

    fn needed<'a, 'i>(
        &self,
        table: &'a DeTable<'i>,
        key: &str,
    ) -> Result<&'a Spanned<DeValue<'i>>, TextError> {
        // A point's table has no place of its own: it is where its keys are.
        let place = table.keys().next().map_or(0..0, Spanned::span);
        table
            .get(key)
            .ok_or_else(|| self.wrong(place, key, "is missing"))
    }

    fn integer(
        &self,
        table: &DeTable<'_>,
        key: &str,
        default: Option<Tokens>,
    ) -> Result<Tokens, TextError> {
        if let (None, Some(default)) = (table.get(key), default) {
            return Ok(default);
        }
        let value = self.needed(table, key)?;
        let number = value.get_ref().as_integer();
        let number = number.and_then(|n| i64::from_str_radix(n.as_str(), n.radix()).ok());
        number.ok_or_else(|| self.wrong(value.span(), key, "is not a whole number of 64 bits"))
    }

    fn rate(&self, table: &DeTable<'_>, key: &str) -> Result<u64, TextError> {
        let number = self.integer(table, key, None)?;
        let span = self.needed(table, key)?.span();
        u64::try_from(number)
            .map_err(|_| self.wrong(span, key, format!("{number}; it is not negative")))
    }

    fn narrow(
        &self,
        table: &DeTable<'_>,
        key: &str,
        default: Option<Tokens>,
    ) -> Result<u32, TextError> {
        let number = self.integer(table, key, default)?;
        let span = table.get(key).map_or(0..0, Spanned::span);
        u32::try_from(number).map_err(|_| {
            self.wrong(
                span,
                key,
                format!("{number}; it is between 0 and {}", u32::MAX),
            )
        })
    }

    fn curve(&self, top: &DeTable<'_>) -> Result<Vec<Point>, TextError> {
        let value = self.needed(top, "point")?;
        let Some(rows) = value.get_ref().as_array() else {
            return Err(self.wrong(
                value.span(),
                "point",
                "is not a list of tables; write [[point]]",
            ));
        };
        let mut curve = Vec::new();
        for row in rows.iter() {
            let Some(table) = row.get_ref().as_table() else {
                return Err(self.wrong(row.span(), "point", "is not a table; write [[point]]"));
            };
            self.only(table, POINT_KEYS)?;
            curve.push(Point {
                p95_us: self.narrow(table, "p95-us", None)?,
                mixed: self.rate(table, "mixed")?,
                read_only: self.rate(table, "read-only")?,
            });
        }
        Ok(curve)
    }

    /// Where in the text is what [`DeviceModel::check`] found?
    fn place(&self, top: &DeTable<'_>, error: &ModelError) -> TextError {
        let points = top
            .get("point")
            .and_then(|value| value.get_ref().as_array());
        let row = error
            .point
            .and_then(|index| points.and_then(|rows| rows.get(index)));
        let table = row.and_then(|row| row.get_ref().as_table()).unwrap_or(top);
        let span = table.get(error.key).map_or(0..0, Spanned::span);
        self.wrong(span, error.key, error.what.clone())
    }
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            char if char.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(char));
            }
            char => out.push(char),
        }
    }
    out.push('"');
    out
}
