// SPDX-License-Identifier: GPL-2.0-only
//! Queues: servers with one queue, and a die, where reads go before programs.

use crate::Nanos;

/// One server that takes what comes in order: controller, bus, link.
#[derive(Clone, Debug, Default)]
pub struct Server {
    free_at: Nanos,
    pub busy: Nanos,
}

impl Server {
    /// Serve `work` that arrives at `now`: how long it takes with its wait.
    #[inline]
    pub fn serve(&mut self, now: Nanos, work: Nanos) -> Nanos {
        self.free_at = self.free_at.max(now).saturating_add(work);
        self.busy += work;
        self.free_at - now
    }
}

/// A die: reads first, in order; programs, erases and the reads of garbage
/// collection fill the gaps.
///
/// Two numbers describe it: reads keep it busy until `free_at`, and from then on
/// it works off `backlog`. What reads take and what is left of the backlog is
/// settled when somebody looks.
#[derive(Clone, Debug, Default)]
pub struct Die {
    free_at: Nanos,
    backlog: Nanos,
    pub busy_reads: Nanos,
    pub busy_writes: Nanos,
}

/// How a die treats a read.
#[derive(Clone, Copy, Debug)]
pub struct ReadRule {
    pub t_read: Nanos,
    /// Length of the operations in the backlog.
    pub t_operation: Nanos,
    pub t_suspend: Option<Nanos>,
    /// Time of the operations after the current one that are handed over
    /// already.
    pub committed: Nanos,
    /// Writes are so far behind that one operation goes before this read.
    pub yields: bool,
}

impl Die {
    /// Backlog at `now`: time until all of it is done if no reads come.
    #[inline]
    pub fn settle(&mut self, now: Nanos) -> Nanos {
        if now > self.free_at {
            self.backlog = self.backlog.saturating_sub(now - self.free_at);
            self.free_at = now;
        }
        self.backlog
    }

    /// Add an operation to the backlog.
    #[inline]
    pub fn add(&mut self, now: Nanos, work: Nanos) {
        self.settle(now);
        self.backlog += work;
        self.busy_writes += work;
    }

    /// A read that arrives at `now`: how long it takes with its wait.
    #[inline]
    pub fn read(&mut self, now: Nanos, rule: &ReadRule) -> Nanos {
        // Behind another read the die is in read mode already.
        let queued = self.free_at > now;
        let backlog = self.settle(now);
        let mut wait = 0;
        if backlog > 0 && (!queued || rule.yields) {
            // The operation in progress ends first, and what the die has been
            // given with it. Operations are of several lengths; the rest by the
            // longest is near enough.
            let rest = match (backlog - 1) % rule.t_operation + 1 {
                _ if queued => rule.t_operation.min(backlog),
                rest => backlog.min(rest + rule.committed),
            };
            wait = match rule.t_suspend {
                Some(suspend) if !rule.yields && suspend < rest => {
                    // Getting back to it costs as much again.
                    self.backlog += suspend;
                    self.busy_writes += suspend * 2;
                    suspend
                }
                _ => {
                    self.backlog -= rest;
                    rest
                }
            };
        }
        self.free_at += wait + rule.t_read;
        self.busy_reads += rule.t_read;
        self.free_at - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> ReadRule {
        ReadRule {
            t_read: 10,
            t_operation: 100,
            t_suspend: None,
            committed: 0,
            yields: false,
        }
    }

    #[test]
    fn a_server_keeps_order() {
        let mut server = Server::default();
        assert_eq!(server.serve(0, 10), 10);
        assert_eq!(server.serve(5, 10), 15);
        assert_eq!(server.serve(100, 10), 10);
        assert_eq!(server.busy, 30);
    }

    #[test]
    fn a_read_waits_for_the_operation_but_not_for_the_backlog() {
        let mut die = Die::default();
        assert_eq!(die.read(0, &rule()), 10);
        die.add(10, 100);
        die.add(10, 100);
        // 70 of the first have passed.
        assert_eq!(die.read(80, &rule()), 40);
        // Reads one after the other wait for none.
        assert_eq!(die.read(80, &rule()), 50);
        assert_eq!(die.settle(130), 100, "reads held it up");
        assert_eq!(die.settle(230), 0);
        assert_eq!(die.read(1000, &rule()), 10);
    }

    #[test]
    fn a_read_waits_for_what_the_die_was_given() {
        let mut die = Die::default();
        die.add(0, 300);
        let committed = ReadRule {
            committed: 100,
            ..rule()
        };
        assert_eq!(die.read(50, &committed), 160);
        assert_eq!(die.settle(210), 100);
        assert_eq!(die.read(250, &committed), 70, "no more than there is");
    }

    #[test]
    fn suspension() {
        let mut die = Die::default();
        die.add(0, 100);
        let suspends = ReadRule {
            t_suspend: Some(5),
            ..rule()
        };
        assert_eq!(die.read(10, &suspends), 15);
        assert_eq!(die.settle(25), 95, "the program takes longer");
        // What ends soon is not suspended.
        assert_eq!(die.read(117, &suspends), 13);
        assert_eq!(die.settle(130), 0);
    }

    #[test]
    fn reads_yield_when_writes_are_far_behind() {
        let mut die = Die::default();
        die.add(0, 1000);
        let yields = ReadRule {
            yields: true,
            ..rule()
        };
        assert_eq!(die.read(0, &yields), 110);
        assert_eq!(die.read(0, &yields), 220);
        assert_eq!(die.settle(220), 800);
    }
}
