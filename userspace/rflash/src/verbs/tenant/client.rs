// SPDX-License-Identifier: GPL-2.0-only
//! The server's admin socket: one JSON object a line each way.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::error::Error;

/// It answers at once, unless it is opening devices.
const PATIENCE: Duration = Duration::from_secs(30);
/// No answer is longer.
const ANSWER_MAX: u64 = 64 << 20;

pub struct Server<'a> {
    path: &'a Path,
}

impl<'a> Server<'a> {
    pub fn at(path: &'a Path) -> Server<'a> {
        Server { path }
    }

    /// The answer, or the server's sentence about why not.
    pub fn ask(&self, request: &Value) -> Result<Value, Error> {
        let text = self.converse(request).map_err(|e| self.unreachable(&e))?;
        let path = self.path.display();
        let answer: Value = serde_json::from_str(&text)
            .map_err(|_| Error::new(format!("{path}: what answers there is no rflashd")))?;
        match answer.get("ok").and_then(Value::as_bool) {
            Some(true) => Ok(answer),
            _ => {
                let error = answer.get("error").and_then(Value::as_str);
                Err(Error::new(error.unwrap_or("the server gives no reason")))
            }
        }
    }

    fn converse(&self, request: &Value) -> io::Result<String> {
        let mut socket = UnixStream::connect(self.path)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        socket.write_all(format!("{request}\n").as_bytes())?;
        let mut text = String::new();
        BufReader::new(socket.take(ANSWER_MAX)).read_line(&mut text)?;
        Ok(text)
    }

    fn unreachable(&self, error: &io::Error) -> Error {
        let path = self.path.display();
        Error::new(match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                format!("{path}: no rflashd answers there, does it run? (--socket names another)")
            }
            io::ErrorKind::PermissionDenied => format!("{path}: this needs root: try sudo"),
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("{path}: rflashd gave no answer in {} s", PATIENCE.as_secs())
            }
            _ => format!("{path}: {error}"),
        })
    }
}
