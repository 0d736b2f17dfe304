// SPDX-License-Identifier: GPL-2.0-only
//! The command as it is run: help, usage, exit status, and every error that
//! needs no kernel. What these tests run never reaches a driver.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::path::PathBuf;
use std::process::{Command, Stdio};

const NQN: &str = "nqn.2024-01.io.example:a";

struct Output {
    status: i32,
    stdout: String,
    stderr: String,
}

fn rflash(args: &[&str]) -> Output {
    let out = Command::new(env!("CARGO_BIN_EXE_rflash"))
        .args(args)
        .stdin(Stdio::null())
        .env("COLUMNS", "100")
        .output()
        .unwrap();
    Output {
        status: out.status.code().expect("it was not killed"),
        stdout: String::from_utf8(out.stdout).unwrap(),
        stderr: String::from_utf8(out.stderr).unwrap(),
    }
}

/// Fails with that status, nothing on stdout and one line on stderr.
fn fails(status: i32, args: &[&str], sentence: &str) {
    let out = rflash(args);
    assert_eq!(out.stderr, format!("rflash: {sentence}\n"), "{args:?}");
    assert_eq!(out.status, status, "{args:?}");
    assert_eq!(out.stdout, "", "{args:?}");
}

fn golden(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("RFLASH_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        text, want,
        "{name}: not as in tests/golden; if it should be like this, RFLASH_UPDATE_GOLDEN=1 cargo test"
    );
}

#[test]
fn help() {
    for verb in [
        "",
        "connect",
        "disconnect",
        "list",
        "show",
        "stats",
        "discover",
        "load",
        "tenant",
        "connect-all",
        "calibrate",
        "completions",
    ] {
        let mut args = vec![verb, "--help"];
        args.retain(|a| !a.is_empty());
        let out = rflash(&args);
        assert_eq!((out.status, out.stderr.as_str()), (0, ""), "{verb}");
        let name = if verb.is_empty() { "rflash" } else { verb };
        golden(&format!("help-{name}.txt"), &out.stdout);
        assert!(
            out.stdout.contains("Example"),
            "{verb}: help has an example"
        );
    }
}

#[test]
fn version() {
    let out = rflash(&["--version"]);
    assert_eq!(
        out.stdout,
        format!("rflash {}\n", env!("CARGO_PKG_VERSION"))
    );
    assert_eq!(out.status, 0);
}

#[test]
fn nothing_to_do_shows_help() {
    let out = rflash(&[]);
    assert_eq!((out.status, out.stdout.as_str()), (2, ""));
    assert!(
        out.stderr.contains("Usage: rflash <COMMAND>"),
        "{}",
        out.stderr
    );
}

#[test]
fn completions() {
    for shell in ["bash", "zsh", "fish"] {
        let out = rflash(&["completions", shell]);
        assert_eq!(out.status, 0);
        assert!(out.stdout.contains("fast-io-fail-tmo"), "{shell}");
    }
}

#[test]
fn wrong_usage() {
    fails(
        2,
        &["lits"],
        "unrecognized subcommand 'lits'; tip: a similar subcommand exists: 'list'; see `rflash --help`",
    );
    fails(
        2,
        &["connect", "-n", NQN],
        "the following required arguments were not provided: --traddr <ADDR>; see `rflash connect --help`",
    );
    fails(
        2,
        &["connect", "-a", "::1", "-n", NQN, "-i", "many"],
        "invalid value 'many' for '--nr-io-queues <N>': invalid digit found in string; see `rflash connect --help`",
    );
    fails(
        2,
        &["list", "-o", "yaml"],
        "invalid value 'yaml' for '--output-format <FORMAT>' [possible values: text, json]; see `rflash list --help`",
    );
    fails(
        2,
        &["disconnect", "--all", "-n", NQN],
        "the argument '--all' cannot be used with '--nqn <NQN>'; see `rflash disconnect --help`",
    );
    fails(
        2,
        &["disconnect"],
        "the following required arguments were not provided: <--device <DEVICE>|--nqn <NQN>|--all>; see `rflash disconnect --help`",
    );
    assert_eq!(rflash(&["show"]).status, 2);
    assert_eq!(rflash(&["stats", "rflash0", "--count", "3"]).status, 2);
}

#[test]
fn input_that_cannot_be_right() {
    let connect = |args: &[&'static str]| -> Vec<&'static str> {
        let mut all = vec!["connect", "-t", "tcp", "-a", "192.0.2.1", "-n", NQN];
        for pair in args.chunks(2) {
            match all.iter().position(|a| *a == pair[0]) {
                Some(at) => all[at + 1] = pair[1],
                None => all.extend(pair),
            }
        }
        all
    };
    for (args, sentence) in [
        (
            &["-s", "0"][..],
            "-s/--trsvcid: port 0 cannot be connected to: give 1 to 65535",
        ),
        (
            &["-s", "65536"],
            "-s/--trsvcid: port 65536 does not exist: give 1 to 65535",
        ),
        (
            &["--class", "gold"],
            "--class: \"gold\" is not a class of tenants: give lc (latency-critical) or be \
             (best-effort)",
        ),
        (
            &["--class", "lc", "--slo-p95", "500", "--slo-iops", "20000"],
            "--slo-read-pct: missing, --class lc needs it",
        ),
        (&["--slo-bs", "4k"], "--slo-bs: give --class, too"),
        (
            &["-t", "rdma"],
            "-t/--transport: \"rdma\" is not a transport this version has: give tcp",
        ),
        (
            &["-a", "2001:db8::1::2"],
            "-a/--traddr: \"2001:db8::1::2\" is not an IPv6 address: give groups of hexadecimal \
             digits, as in 2001:db8::1, without a port (that is -s)",
        ),
        (
            &["-a", "192.0.2.256"],
            "-a/--traddr: \"192.0.2.256\" is not an IPv4 address: give four numbers of 0 to 255, \
             as in 192.0.2.1",
        ),
        (
            &["-a", "fe80::1"],
            "-a/--traddr: \"fe80::1\" is link-local: name the interface, as in fe80::1%eth0",
        ),
        (
            &["-n", "flash"],
            "-n/--nqn: \"flash\" is not an NQN: it must begin with \"nqn.\"",
        ),
        (
            &["-q", "host"],
            "-q/--hostnqn: \"host\" is not an NQN: it must begin with \"nqn.\"",
        ),
        (
            &["-i", "0"],
            "-i/--nr-io-queues: 0 queues carry nothing: give 1 or more",
        ),
        (
            &["-Q", "4096"],
            "-Q/--queue-size: 4096 is out of range: give 16 to 1024 entries",
        ),
        (
            &["-k", "-1"],
            "-k/--keep-alive-tmo: -1 is out of range: give 0 to 3600 seconds",
        ),
        (
            &["-c", "0"],
            "-c/--reconnect-delay: 0 is out of range: give 1 to 3600 seconds",
        ),
        (
            &["-l", "10", "-F", "20"],
            "-F/--fast-io-fail-tmo: 20 s exceeds ctrl-loss-tmo, which is 10 s",
        ),
    ] {
        fails(1, &connect(args), sentence);
    }
    let out = rflash(&connect(&["-i", "100000"]));
    let part = "-i/--nr-io-queues: 100000 queues are more than this machine's ";
    assert!(
        out.stderr.starts_with(&format!("rflash: {part}")),
        "{}",
        out.stderr
    );
    assert_eq!(out.status, 1);
}

#[test]
fn names_of_nvme_cli_are_understood() {
    let out = rflash(&[
        "connect",
        "--transport=tcp",
        "--traddr=192.0.2.1",
        "--trsvcid=0",
        "--nqn",
        NQN,
        "--host-traddr=192.0.2.2",
        "--hostnqn",
        NQN,
        "--hostid",
        "01234567-89ab-cdef-0123-456789abcdef",
        "--nr-io-queues=1",
        "--queue-size=64",
        "--keep-alive-tmo=5",
        "--reconnect-delay=10",
        "--ctrl-loss-tmo=-1",
        "--fast_io_fail_tmo=5",
        "--hdr-digest",
        "--data-digest",
        "--output-format=json",
    ]);
    assert_eq!(out.status, 1, "{}", out.stderr);
    assert!(out.stderr.contains("port 0"), "{}", out.stderr);
}

#[test]
fn device_names() {
    // Whether or not there is a driver, sda is not one of its devices.
    let out = rflash(&["show", "sda"]);
    assert_eq!(out.status, 1);
    assert_eq!(out.stderr.lines().count(), 1);
}

#[test]
fn discover_reports() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    fails(
        1,
        &[
            "discover",
            "-a",
            "127.0.0.1",
            "-s",
            &closed.port().to_string(),
        ],
        &format!(
            "127.0.0.1 port {} refused the connection: nothing listens there, check -s and that the target runs",
            closed.port()
        ),
    );
    let silent = std::net::TcpListener::bind("[::1]:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    fails(
        1,
        &[
            "discover",
            "-a",
            "[::1]",
            "-s",
            &port.to_string(),
            "--timeout",
            "1",
        ],
        &format!(
            "::1 port {port} accepted the connection but never answered in 1 s: is it an NVMe/TCP port and is the target well?"
        ),
    );
    fails(
        1,
        &["discover", "-a", "::1", "--timeout", "0"],
        "--timeout: 0 is out of range: give 1 to 3600 seconds",
    );
}

#[test]
fn connect_all_names_file_line_and_key() {
    let directory = std::env::temp_dir().join(format!("rflash-cli-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = |name: &str| directory.join(name).display().to_string();
    let all = directory.display().to_string();

    let out = rflash(&["connect-all", "-C", &all]);
    assert_eq!(out.status, 0);
    assert_eq!(
        out.stderr,
        format!("rflash: nothing to connect: no entries in {all}\n")
    );

    std::fs::write(
        path("b.toml"),
        "[[connect]]\ntraddr = \"::1\"\nnqn = \"flash\"\n",
    )
    .unwrap();
    std::fs::write(
        path("a.toml"),
        "[[connect]]\ntraddr = \"::1\"\ntrsvcid = 0\nnqn = \"nqn.2024-01.io.example:a\"\n\
         [[connect]]\ntraddr = \"::1\"\nnqns = 1\n",
    )
    .unwrap();
    std::fs::write(path("rflashd.toml"), "not for us").unwrap();
    let out = rflash(&["connect-all", "-C", &all]);
    assert_eq!(out.status, 1);
    let lines: Vec<_> = out.stderr.lines().collect();
    let start = |name: &str, rest: &str| format!("rflash: {}:{rest}", path(name));
    assert!(lines[0].starts_with(&start("a.toml", "7: nqns: no such key, allowed are ")));
    assert_eq!(
        lines[1],
        start("a.toml", "5: nqn: missing, every [[connect]] needs one")
    );
    assert_eq!(
        lines[2],
        start(
            "a.toml",
            "3: trsvcid: port 0 cannot be connected to: give 1 to 65535"
        )
    );
    assert_eq!(
        lines[3],
        start(
            "b.toml",
            "3: nqn: \"flash\" is not an NQN: it must begin with \"nqn.\""
        )
    );
    assert_eq!(lines.len(), 4);

    fails(
        1,
        &["connect-all", "-C", &path("none.toml")],
        &format!("{}: no such file or directory", path("none.toml")),
    );
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_closed_pipe_is_no_panic() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_rflash"))
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(out.stderr).unwrap(), "");
    assert!(out.status.code().is_some());
}
