// SPDX-License-Identifier: GPL-2.0-only
//! The floor: a raw TCP echo with the bytes of NVMe/TCP reads and writes and
//! nothing else, as fast as a spinning thread at each end is.
//!
//! `floor server [CPU]` prints its address and serves one connection after
//! another until its standard input ends. `floor client ADDRESS IN OUT QD
//! SECONDS [CPU]` sends requests of IN bytes, QD outstanding, waits for answers
//! of OUT bytes, and prints JSON. A read of 4 KiB is 72 in, 4120 out; a write of
//! 4 KiB is 4168 in, 24 out.
#![allow(clippy::indexing_slicing)]

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rflash::verbs::load::histogram::Histogram;
use rustix::thread::{CpuSet, sched_setaffinity};

type Error = Box<dyn std::error::Error>;

/// Bytes received at once.
const RECEIVE: usize = 512 * 1024;
/// Answers and requests are made of these; large enough for all outstanding.
const CHUNK: usize = 1024;

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let text: Vec<&str> = args.iter().map(String::as_str).collect();
    match text[..] {
        ["server"] => server(),
        ["server", cpu] => {
            pin(cpu)?;
            server()
        }
        ["client", address, input, output, depth, seconds] => client(
            address,
            input.parse()?,
            output.parse()?,
            depth.parse()?,
            seconds.parse()?,
        ),
        ["client", address, input, output, depth, seconds, cpu] => {
            pin(cpu)?;
            client(
                address,
                input.parse()?,
                output.parse()?,
                depth.parse()?,
                seconds.parse()?,
            )
        }
        _ => Err("give: server [CPU] | client ADDRESS IN OUT QD SECONDS [CPU]".into()),
    }
}

fn pin(cpu: &str) -> Result<(), Error> {
    let mut set = CpuSet::new();
    set.set(cpu.parse()?);
    Ok(sched_setaffinity(None, &set)?)
}

fn server() -> Result<(), Error> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    std::thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    loop {
        let (stream, _) = listener.accept()?;
        // The client's end is the end of the connection.
        let _ = echo(stream);
    }
}

/// The sizes come first, eight bytes each.
fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut sizes = [0; 16];
    stream.read_exact(&mut sizes)?;
    let size = |at: usize| u64::from_le_bytes(sizes[at..at + 8].try_into().unwrap_or_default());
    let (input, output) = (size(0) as usize, size(8) as usize);
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut buffer = vec![0; RECEIVE];
    let head = [7; 24];
    let data = vec![7; output - head.len()];
    let mut have = 0;
    // Bytes of answers that are due.
    let mut due = 0;
    loop {
        if let Some(n) = take(stream.read(&mut buffer))? {
            have += n;
            due += have / input * output;
            have %= input;
        }
        while due > 0 {
            match take(send(&mut stream, due, output, &head, &data))? {
                Some(n) => due -= n,
                None => break,
            }
        }
    }
}

/// What an answer is made of, as many as one sendmsg takes, each by reference.
/// `due` ends where an answer ends.
fn send(
    stream: &mut TcpStream,
    due: usize,
    each: usize,
    head: &[u8],
    data: &[u8],
) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); CHUNK];
    let mut used = 0;
    let mut left = due;
    // The first may have begun already.
    let mut skip = (each - due % each) % each;
    while left > 0 && used + 2 <= CHUNK {
        let from = skip.min(head.len());
        let rest = skip - from;
        slices[used] = IoSlice::new(&head[from..]);
        slices[used + 1] = IoSlice::new(&data[rest..]);
        used += 2;
        left -= each - skip;
        skip = 0;
    }
    stream.write_vectored(&slices[..used])
}

/// `None`: not now.
fn take(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(n) => Ok(Some(n)),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        Err(e) => Err(e),
    }
}

fn client(
    address: &str,
    input: usize,
    output: usize,
    depth: usize,
    seconds: f64,
) -> Result<(), Error> {
    if input < 24 || output < 24 || depth == 0 {
        return Err("IN and OUT are 24 or more, QD 1 or more".into());
    }
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.write_all(&(input as u64).to_le_bytes())?;
    stream.write_all(&(output as u64).to_le_bytes())?;
    stream.set_nonblocking(true)?;
    let requests = vec![7; input * depth];
    let mut buffer = vec![0; RECEIVE];
    let mut starts = vec![0_u64; depth];
    let mut latency = Histogram::default();
    let start = Instant::now();
    let warm = Duration::from_secs_f64(seconds / 10.0).as_nanos() as u64;
    let end = warm + Duration::from_secs_f64(seconds).as_nanos() as u64;
    let (mut unsent, mut sent, mut have, mut done) = (input * depth, 0, 0, 0_usize);
    loop {
        while unsent > 0 {
            let len = unsent.min(requests.len() - sent);
            match take(stream.write(&requests[sent..sent + len]))? {
                Some(n) => {
                    unsent -= n;
                    sent = (sent + n) % requests.len();
                }
                None => break,
            }
        }
        let got = take(stream.read(&mut buffer))?;
        let now = start.elapsed().as_nanos() as u64;
        if now >= end {
            break;
        }
        have += got.unwrap_or(0);
        let ended = have / output;
        have %= output;
        for _ in 0..ended {
            // Answers come in order, so the oldest start is the one's.
            let slot = &mut starts[done % depth];
            if now >= warm {
                latency.record(now - *slot);
            }
            *slot = now;
            done += 1;
        }
        unsent += ended * input;
    }
    let us = |per_mille| latency.percentile(per_mille).unwrap_or(0) as f64 / 1000.0;
    println!(
        "{{\"iops\": {:.0}, \"p50\": {}, \"p95\": {}, \"p99\": {}}}",
        latency.count() as f64 / seconds,
        us(500),
        us(950),
        us(990)
    );
    Ok(())
}
