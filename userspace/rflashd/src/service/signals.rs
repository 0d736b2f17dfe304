// SPDX-License-Identifier: GPL-2.0-only
//! Signals, as events of a loop.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    Reload,
    Stop,
}

/// SIGHUP, SIGTERM and SIGINT, each on a socket of its own.
#[derive(Debug)]
pub struct Signals {
    sources: Vec<(UnixStream, Wish)>,
}

impl Signals {
    /// From now on these signals are events. A second SIGINT or SIGTERM after
    /// the first was taken is an event, too: nobody is killed half way.
    pub fn new() -> io::Result<Signals> {
        let mut sources = Vec::new();
        for (signal, wish) in [
            (SIGHUP, Wish::Reload),
            (SIGTERM, Wish::Stop),
            (SIGINT, Wish::Stop),
        ] {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal, theirs)?;
            sources.push((ours, wish));
        }
        Ok(Signals { sources })
    }

    /// Wait until `until` at most; what came, once however often it came.
    pub fn wait(&mut self, until: Instant) -> io::Result<Option<Wish>> {
        let left = until.saturating_duration_since(Instant::now());
        let mut fds: Vec<PollFd<'_>> = self
            .sources
            .iter()
            .map(|(socket, _)| PollFd::new(socket, PollFlags::IN))
            .collect();
        match poll(&mut fds, Some(&timespec(left))) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(e) => return Err(e.into()),
        }
        drop(fds);
        let mut wish = None;
        for (socket, means) in &mut self.sources {
            let mut buffer = [0; 64];
            while matches!(socket.read(&mut buffer), Ok(n) if n > 0) {
                // To stop is the stronger wish.
                if wish != Some(Wish::Stop) {
                    wish = Some(*means);
                }
            }
        }
        Ok(wish)
    }
}

fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_become_wishes() {
        let mut signals = Signals::new().unwrap();
        let soon = || Instant::now() + Duration::from_millis(10);
        assert_eq!(signals.wait(soon()).unwrap(), None);
        signal_hook::low_level::raise(SIGHUP).unwrap();
        signal_hook::low_level::raise(SIGHUP).unwrap();
        let late = || Instant::now() + Duration::from_secs(5);
        assert_eq!(signals.wait(late()).unwrap(), Some(Wish::Reload));
        assert_eq!(signals.wait(soon()).unwrap(), None);
        signal_hook::low_level::raise(SIGHUP).unwrap();
        signal_hook::low_level::raise(SIGTERM).unwrap();
        assert_eq!(signals.wait(late()).unwrap(), Some(Wish::Stop));
    }
}
