// SPDX-License-Identifier: GPL-2.0-only
//! `rflash load` against a small target in this process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod target;

use std::process::{Command, Stdio};

use serde_json::Value;
use target::{BAD_BLOCK, Fault, Target};

struct Output {
    status: i32,
    stdout: String,
    stderr: String,
}

fn load(target: &Target, args: &[&str]) -> Output {
    let port = target.address.port().to_string();
    let out = Command::new(env!("CARGO_BIN_EXE_rflash"))
        .args(["load", "-a", "127.0.0.1", "-s", &port])
        .args(["-n", "nqn.2024-01.io.example:a"])
        .args([
            "-q",
            "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
        ])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    Output {
        status: out.status.code().expect("it was not killed"),
        stdout: String::from_utf8(out.stdout).unwrap(),
        stderr: String::from_utf8(out.stderr).unwrap(),
    }
}

const SHORT: [&str; 4] = ["--time", "0.3", "--warmup", "0"];

/// Options that make it short, unless something else was asked for.
fn with_time<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let skip = if args.contains(&"--time") { 2 } else { 0 };
    [&SHORT[skip..], args].concat()
}

fn json(target: &Target, args: &[&str]) -> Value {
    let out = load(target, &[&with_time(args)[..], &["-o", "json"]].concat());
    assert_eq!((out.status, out.stderr.as_str()), (0, ""), "{args:?}");
    serde_json::from_str(&out.stdout).unwrap()
}

/// Fails with one sentence that has these words in it.
fn fails(target: &Target, args: &[&str], words: &str) {
    let out = load(target, &with_time(args));
    assert_eq!((out.status, out.stdout.as_str()), (1, ""), "{args:?}");
    assert_eq!(out.stderr.lines().count(), 1, "{}", out.stderr);
    assert!(out.stderr.contains(words), "{args:?}: {}", out.stderr);
}

#[test]
fn reads() {
    let target = Target::start(1000, Fault::None);
    let got = json(&target, &["--qd", "8"]);
    let read = &got["read"];
    assert!(read["ios"].as_u64().unwrap() > 100, "{read}");
    assert_eq!(got["write"]["ios"], 0);
    let us = |name: &str| read["latency_us"][name].as_f64().unwrap();
    for pair in ["min", "p50", "p95", "p99", "p999", "max"].windows(2) {
        assert!(us(pair[0]) <= us(pair[1]), "{read}");
    }
    let windows = got["windows"].as_array().unwrap();
    let sum: u64 = windows
        .iter()
        .map(|w| w["read"]["ios"].as_u64().unwrap())
        .sum();
    assert_eq!(sum, read["ios"].as_u64().unwrap());
    assert_eq!(got["not_started"], Value::Null);
    assert_eq!(target.written(), 0);
    let out = load(&target, &SHORT);
    assert!(
        out.stdout.contains("IOPS") && out.stdout.contains("\nreads "),
        "{}",
        out.stdout
    );
}

#[test]
fn several_connections_and_controllers() {
    // The target grants three queues per controller.
    let target = Target::start(1000, Fault::None);
    for connections in ["2", "5", "12"] {
        let got = json(
            &target,
            &["--connections", connections, "--qd", "4", "--rw", "randrw"],
        );
        assert!(got["read"]["ios"].as_u64().unwrap() > 20, "{got}");
        assert!(got["write"]["ios"].as_u64().unwrap() > 10, "{got}");
    }
}

#[test]
fn a_mix_is_as_it_was_asked_for() {
    let target = Target::start(1000, Fault::None);
    let got = json(&target, &["--rw", "rw", "--read-pct", "90", "--qd", "4"]);
    let ios = |what: &str| got[what]["ios"].as_f64().unwrap();
    let share = ios("read") / (ios("read") + ios("write"));
    assert!((0.8..0.97).contains(&share), "{share}");
}

#[test]
fn verification() {
    let target = Target::start(200, Fault::None);
    for digests in [&["--bs", "4k"][..], &["-g", "-G", "--bs", "8k"]] {
        for (rw, connections) in [("randrw", "3"), ("rw", "1"), ("write", "2")] {
            let mut args = vec![
                "--rw",
                rw,
                "--connections",
                connections,
                "--qd",
                "8",
                "--verify",
            ];
            args.extend(digests);
            let got = json(&target, &args);
            assert!(got["verified"].as_u64().unwrap() > 10, "{got}");
        }
    }
    // Larger than what goes in a capsule.
    let args = ["--rw", "randwrite", "--bs", "64k", "--qd", "1", "--verify"];
    assert!(json(&target, &args)["verified"].as_u64().unwrap() > 2);
    assert!(target.written() > 100 * 4096);
    let target = Target::start(200, Fault::Lose);
    let args = ["--rw", "randwrite", "--qd", "8", "--verify"];
    fails(&target, &args, "lost data: the 4096 bytes at offset ");
}

#[test]
fn a_rate_is_kept() {
    let target = Target::start(1000, Fault::None);
    let got = json(
        &target,
        &["--rate", "2000", "--connections", "2", "--time", "1"],
    );
    let began = got["read"]["ios"].as_u64().unwrap() + got["not_started"].as_u64().unwrap();
    // A busy machine may stop for a moment at the beginning or at the end.
    assert!((1900..=2100).contains(&began), "{got}");
    // Ten at a time, 20 ms each one after the other: a rate it cannot keep.
    let target = Target::start(1000, Fault::Slow(20));
    let got = json(&target, &["--rate", "1000", "--qd", "10", "--time", "0.6"]);
    assert!(got["not_started"].as_u64().unwrap() > 300, "{got}");
}

/// A pause shows in the latencies of all that should have begun in it.
#[test]
fn no_coordinated_omission() {
    let target = Target::start(1000, Fault::Pause(300));
    let args = ["--rate", "1000", "--qd", "1", "--time", "1.5"];
    let got = json(&target, &args);
    let p90 = got["read"]["latency_us"]["p95"].as_f64().unwrap();
    assert!(
        p90 > 100_000.0,
        "300 of 1500 waited for up to 300 ms: {got}"
    );
    let got = json(
        &Target::start(1000, Fault::Pause(300)),
        &["--qd", "1", "--time", "1.5"],
    );
    let p95 = got["read"]["latency_us"]["p95"].as_f64().unwrap();
    assert!(p95 < 100_000.0, "a closed loop does not see it: {got}");
}

#[test]
fn errors_are_one_sentence() {
    let target = Target::start(100, Fault::Media);
    let words = "failed a read: unrecovered read error (status 0x281)";
    fails(&target, &["--rw", "read"], words);
    let size = format!("{}k", BAD_BLOCK * 4);
    json(&target, &["--rw", "read", "--size", &size, "--qd", "4"]);
    let target = Target::start(100, Fault::Close);
    fails(&target, &[], "closed the connection during I/O");
    let target = Target::start(100, Fault::None);
    fails(
        &target,
        &["--qd", "128"],
        "takes 127 commands per queue, not 128",
    );
    fails(
        &target,
        &["--bs", "2m"],
        "takes at most 1048576 bytes per command, not 2097152",
    );
    fails(
        &target,
        &["--bs", "2k"],
        "2k is no multiple of the namespace's blocks of 4096 bytes",
    );
    fails(&target, &["--nsid", "2"], "has no namespace 2");
    fails(
        &target,
        &["--size", "1m"],
        "--size: the namespace has 409600 bytes, not 1048576",
    );
    fails(
        &target,
        &["--connections", "200"],
        "409600 bytes are too few for 200 connections",
    );
}

#[test]
fn wrong_options() {
    let target = Target::start(100, Fault::None);
    for (args, words) in [
        (
            &["--bs", "100"][..],
            "--bs: 100 is no multiple of 512 from 512 to 16m",
        ),
        (&["--bs", "4q"], "--bs: \"4q\" is not a size"),
        (
            &["--read-pct", "50"],
            "--read-pct: it is for --rw rw and randrw, not randread",
        ),
        (
            &["--rw", "rw", "--read-pct", "101"],
            "--read-pct: 101 is not 0 to 100",
        ),
        (&["--qd", "0"], "--qd: 0 is not 1 to 4096"),
        (
            &["--connections", "0"],
            "--connections: 0 is not 1 to 16384",
        ),
        (&["--cpu", "1-"], "--cpu: \"1-\" is no list of CPUs"),
        (&["--rate", "0"], "--rate: 0 is not 0.1 to 1e9"),
    ] {
        fails(&target, args, words);
    }
}
