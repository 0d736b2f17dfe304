// SPDX-License-Identifier: GPL-2.0-only
//! The metrics endpoint: one page, by HTTP.
//!
//! One client at a time, each with two seconds and 8 KiB for its request:
//! whoever dawdles delays other scrapers for that long and nobody else.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

const REQUEST_MAX: usize = 8192;
const PATIENCE: Duration = Duration::from_secs(2);
const WORDS: &str = "text/plain; charset=utf-8";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What makes the page.
pub type Page = Arc<dyn Fn() -> String + Send + Sync>;

/// Serve the page at `address` until the process ends. Returns the address that
/// was taken.
pub fn start(address: SocketAddr, page: Page) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let taken = listener.local_addr()?;
    std::thread::Builder::new()
        .name("rflashd-metrics".into())
        .spawn(move || {
            loop {
                match listener.accept() {
                    Ok((client, from)) => {
                        if let Err(e) = answer(client, &page) {
                            log::debug!("metrics for {from}: {e}");
                        }
                    }
                    Err(e) => {
                        log::warn!("metrics: {e}");
                        // Out of descriptors, most likely: not at once again.
                        std::thread::sleep(Duration::from_millis(100));
                    }
                }
            }
        })?;
    Ok(taken)
}

fn answer(mut client: TcpStream, page: &Page) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut request = Vec::with_capacity(1024);
    let (status, kind, body) = loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        client.set_read_timeout(Some(left))?;
        let mut chunk = [0; 1024];
        let n = client.read(&mut chunk)?;
        if n == 0 {
            return Ok(());
        }
        request.extend_from_slice(chunk.get(..n).unwrap_or_default());
        if let Some(answer) = decide(&request, page) {
            break answer;
        }
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    client.write_all(head.as_bytes())?;
    client.write_all(body.as_bytes())
}

/// `None`: the request is not whole yet.
fn decide(request: &[u8], page: &Page) -> Option<(&'static str, &'static str, String)> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Err(e) => Some(("400 Bad Request", WORDS, format!("{e}\n"))),
        Ok(httparse::Status::Partial) if request.len() >= REQUEST_MAX => Some((
            "431 Request Header Fields Too Large",
            WORDS,
            "too long\n".into(),
        )),
        Ok(httparse::Status::Partial) => None,
        Ok(httparse::Status::Complete(_)) => {
            let path = parsed.path.unwrap_or_default();
            let path = path.split('?').next().unwrap_or_default();
            Some(match (parsed.method, path) {
                (Some("GET"), "/metrics") => ("200 OK", METRICS, page()),
                (Some("GET"), "/") => ("200 OK", WORDS, "rflashd: see /metrics\n".into()),
                (Some("GET"), _) => ("404 Not Found", WORDS, "there is /metrics\n".into()),
                _ => ("405 Method Not Allowed", WORDS, "GET it\n".into()),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(address: SocketAddr, request: &[u8]) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        for byte in request.chunks(7) {
            client.write_all(byte).unwrap();
        }
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn what_is_answered() {
        let page: Page = Arc::new(|| "a 1\n".into());
        let address = start("127.0.0.1:0".parse().unwrap(), page).unwrap();
        let ok = get(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(
            ok.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"),
            "{ok}"
        );
        assert!(ok.ends_with("\r\n\r\na 1\n"), "{ok}");
        for (request, want) in [
            (&b"GET /metrics?x=1 HTTP/1.0\r\n\r\n"[..], "HTTP/1.1 200 "),
            (b"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 200 "),
            (b"GET /x HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "),
            (b"\0\0\0\0", "HTTP/1.1 400 "),
        ] {
            let got = get(address, request);
            assert!(got.starts_with(want), "{want}: {got}");
        }
        let long = [b"GET / HTTP/1.1\r\nX: ".to_vec(), vec![b'a'; REQUEST_MAX]].concat();
        let page: Page = Arc::new(String::new);
        assert!(decide(&long, &page).unwrap().0.starts_with("431"));
    }
}
