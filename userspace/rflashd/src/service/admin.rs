// SPDX-License-Identifier: GPL-2.0-only
//! The admin socket: one JSON object a line each way.
//!
//! A request is `{"verb": "tenants"}`, with what the verb needs beside it; an
//! answer is `{"ok": true, ...}` or `{"ok": false, "error": "a sentence"}`. The
//! socket is for root alone: whoever may write to it may change promises.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use serde_json::{Value, json};

/// Longest line.
const LINE_MAX: u64 = 64 << 10;
/// Clients at a time.
const CLIENTS_MAX: usize = 32;
/// A client that says nothing for so long is sent away.
const PATIENCE: Duration = Duration::from_secs(60);

/// What answers: the value beside `"ok": true`, or the sentence of an error.
pub type Answers = Arc<dyn Fn(&str, &Value) -> Result<Value, String> + Send + Sync>;

/// The socket; removed when this is dropped.
#[derive(Debug)]
pub struct Socket {
    path: PathBuf,
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Listen at `path` until the process ends.
pub fn start(path: &Path, answers: Answers) -> io::Result<Socket> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    if UnixStream::connect(path).is_ok() {
        let text = "another rflashd answers there; stop it, or give admin-socket another path";
        return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
    }
    // One that nobody answers at is of a server that was killed.
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    let clients = Arc::new(AtomicUsize::new(0));
    std::thread::Builder::new()
        .name("rflashd-admin".into())
        .spawn(move || {
            loop {
                match listener.accept() {
                    Ok((client, _)) => take(client, &clients, &answers),
                    Err(e) => {
                        log::warn!("admin socket: {e}");
                        std::thread::sleep(Duration::from_millis(100));
                    }
                }
            }
        })?;
    Ok(Socket { path: path.into() })
}

fn take(mut client: UnixStream, clients: &Arc<AtomicUsize>, answers: &Answers) {
    if clients.load(Relaxed) >= CLIENTS_MAX {
        let _ = client.write_all(line(Err("too many clients".into())).as_bytes());
        return;
    }
    clients.fetch_add(1, Relaxed);
    let (answers, count) = (Arc::clone(answers), Arc::clone(clients));
    let thread = std::thread::Builder::new().name("rflashd-admin".into());
    let spawned = thread.spawn(move || {
        if let Err(e) = converse(&client, &answers) {
            log::debug!("admin socket: {e}");
        }
        count.fetch_sub(1, Relaxed);
    });
    if spawned.is_err() {
        clients.fetch_sub(1, Relaxed);
    }
}

fn converse(client: &UnixStream, answers: &Answers) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut reader = BufReader::new(client);
    let mut writer = client;
    loop {
        let mut text = Vec::new();
        let n = reader
            .by_ref()
            .take(LINE_MAX)
            .read_until(b'\n', &mut text)?;
        if n == 0 {
            return Ok(());
        }
        let whole = text.last() == Some(&b'\n');
        let answer = match whole {
            true => reply(&text, answers),
            false => Err(format!("a request is one line of at most {LINE_MAX} bytes")),
        };
        writer.write_all(line(answer).as_bytes())?;
        if !whole {
            return Ok(());
        }
    }
}

fn reply(text: &[u8], answers: &Answers) -> Result<Value, String> {
    let request: Value = serde_json::from_slice(text).map_err(|e| format!("no JSON: {e}"))?;
    let verb = request.get("verb").and_then(Value::as_str);
    let verb = verb.ok_or("a request is an object with a verb")?;
    answers(verb, &request)
}

fn line(answer: Result<Value, String>) -> String {
    let mut object = match answer {
        Ok(Value::Object(more)) => {
            let mut object = serde_json::Map::new();
            object.insert("ok".into(), true.into());
            object.extend(more);
            Value::Object(object)
        }
        Ok(other) => json!({"ok": true, "value": other}),
        Err(error) => json!({"ok": false, "error": error}),
    }
    .to_string();
    object.push('\n');
    object
}

/// Ask a server: what it says beside `"ok"`, or why not.
pub fn ask(path: &Path, request: &Value) -> Result<Value, String> {
    let failed = |e: io::Error| format!("{}: {e}", path.display());
    let mut socket = UnixStream::connect(path).map_err(failed)?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    socket
        .write_all(format!("{request}\n").as_bytes())
        .map_err(failed)?;
    let mut text = String::new();
    BufReader::new(socket)
        .read_line(&mut text)
        .map_err(failed)?;
    let answer: Value = serde_json::from_str(&text)
        .map_err(|_| format!("{}: no answer that can be read", path.display()))?;
    match answer.get("ok").and_then(Value::as_bool) {
        Some(true) => Ok(answer),
        _ => {
            let error = answer.get("error").and_then(Value::as_str);
            Err(error.unwrap_or("it failed without a word").to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers() {
        let path = std::env::temp_dir().join(format!("rflashd-admin-{}", std::process::id()));
        // A stale socket is no obstacle.
        drop(UnixListener::bind(&path).unwrap());
        let answers: Answers = Arc::new(|verb, request| match verb {
            "add" => Ok(json!({"sum": request["a"].as_u64().unwrap_or(0) + 1})),
            _ => Err(format!("there is no verb {verb}")),
        });
        let socket = start(&path, Arc::clone(&answers)).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let answer = ask(&path, &json!({"verb": "add", "a": 3})).unwrap();
        assert_eq!(answer["sum"], 4);
        let error = ask(&path, &json!({"verb": "x"})).unwrap_err();
        assert_eq!(error, "there is no verb x");
        assert!(ask(&path, &json!([1])).unwrap_err().contains("verb"));
        // Several requests on one connection, nonsense among them.
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"nonsense\n{\"verb\":\"add\"}\n").unwrap();
        let mut lines = BufReader::new(client.try_clone().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().starts_with("{\"ok\":false,"));
        assert_eq!(lines.next().unwrap().unwrap(), "{\"ok\":true,\"sum\":1}");
        // One line without end.
        client.write_all(&vec![b'a'; LINE_MAX as usize]).unwrap();
        assert!(lines.next().unwrap().unwrap().contains("one line"));
        // It is taken as long as somebody answers.
        let again = start(&path, answers).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        assert!(!path.exists());
    }
}
