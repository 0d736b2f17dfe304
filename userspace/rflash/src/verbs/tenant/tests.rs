// SPDX-License-Identifier: GPL-2.0-only

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;

use super::*;

fn tenant() -> Value {
    json!({
        "name": "gold", "nqn": "nqn.a", "host": null, "device": "flash0", "origin": "config",
        "cpus": null, "class": "lc", "weight": null, "slo_p95_us": 500, "slo_iops": 20000,
        "slo_read_pct": 90, "slo_block_bytes": 4096, "iops": 19000, "bytes_per_second": 77824000,
        "read_latency_us": {"mean": 90.0, "p50": 80.0, "p95": 312.5, "p99": 400.0, "max": 900.0},
        "slo_windows": 60, "slo_missed": 1, "slo_over": 0,
        "tokens": {"earned": 10, "spent": 9, "waits": 1},
        "interval_s": 10.0, "granted": "gold has a third", "verdict": "all is well",
        "stages": {"token_wait_us": {"mean": 1.0, "p99": 10.0}},
    })
}

#[test]
fn tables() {
    let text = show::list(&Value::Array(vec![tenant()]));
    let mut lines = text.lines();
    assert!(
        lines.next().unwrap().starts_with("NAME  CLASS  PROMISE"),
        "{text}"
    );
    let row = lines.next().unwrap();
    assert!(row.contains("p95 500 us, 20000 IOPS, 90 % reads"), "{text}");
    assert!(row.contains("312") && row.contains("59/60 s"), "{text}");
    let text = show::explanation(&tenant());
    assert!(text.contains("Host       whoever connects"), "{text}");
    assert!(text.contains("gold has a third"), "{text}");
    assert!(text.ends_with("Verdict: all is well.\n"), "{text}");
    assert_eq!(show::list(&Value::Null).lines().count(), 1);
}

fn args(socket: &std::path::Path, action: Action) -> TenantArgs {
    TenantArgs {
        action,
        socket: socket.into(),
        output: GlobalOutput {
            format: crate::cli::Format::Text,
        },
    }
}

fn set(weight: Option<u32>) -> Action {
    Action::Set(SetArgs {
        name: "gold".into(),
        promise: PromiseArgs {
            class: None,
            slo_p95: None,
            slo_iops: None,
            slo_read_pct: None,
            slo_block: None,
            weight,
        },
    })
}

#[test]
fn what_is_asked_and_answered() {
    let path = std::env::temp_dir().join(format!("rflash-tenant-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let nobody = run(&args(&path, Action::List)).unwrap_err().to_string();
    assert!(nobody.contains("no rflashd answers there"), "{nobody}");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for answer in ["{\"ok\":false,\"error\":\"what would fit\"}\n", "what?\n"] {
            let (mut client, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(client.try_clone().unwrap())
                .read_line(&mut line)
                .unwrap();
            asked.push(line);
            client.write_all(answer.as_bytes()).unwrap();
        }
        asked
    });
    let refused = run(&args(&path, set(Some(7)))).unwrap_err();
    assert_eq!(refused.to_string(), "what would fit");
    let strange = run(&args(&path, Action::List)).unwrap_err().to_string();
    assert!(strange.contains("is no rflashd"), "{strange}");
    let asked = server.join().unwrap();
    let first: Value = serde_json::from_str(&asked[0]).unwrap();
    assert_eq!(first["verb"], "tenant-set");
    assert_eq!(
        (&first["name"], &first["weight"]),
        (&json!("gold"), &json!(7))
    );
    assert_eq!(first["class"], Value::Null);
    std::fs::remove_file(&path).unwrap();
    let nothing = run(&args(&path, set(None))).unwrap_err();
    assert_eq!(nothing.exit_code(), std::process::ExitCode::from(2));
}
