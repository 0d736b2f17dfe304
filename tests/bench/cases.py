# SPDX-License-Identifier: GPL-2.0
"""What is measured: subjects, cases, and the promises about them.

A subject is a block device in the guest. A case is a fio workload. Each case
is run on each subject, rounds times, subjects alternating.
"""

from dataclasses import dataclass

# Names in the table; the guest knows how to make each (guest.sh).
SUBJECTS = {
    "null_blk": "the target's device itself: the floor",
    "nvme-tcp": "the kernel's initiator at its best (multipath=N, --disable-sqflow)",
    "rflash": "this project's driver",
}

COMMON = (
    "--ioengine=io_uring --direct=1 --thread --norandommap --randrepeat=1 "
    "--group_reporting --lat_percentiles=1 --clat_percentiles=0 --slat_percentiles=0 "
    "--percentile_list=50:95:99:99.9 --time_based"
)


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    fio: str
    group: str  # the switch that selects it

    def command(self, runtime_ms: int) -> str:
        return f"{COMMON} --runtime={runtime_ms}ms {self.fio}"


def _batched(qd: int) -> str:
    batch = min(qd, 8)
    return f"--iodepth={qd} --iodepth_batch_submit={batch} --iodepth_batch_complete_min={batch}"


def _cases():
    for rw in ("randread", "randwrite"):
        word = rw.removeprefix("rand")
        for qd in (1, 8, 32, 128):
            how = "" if qd == 1 else ", batches of 8"
            yield Case(
                f"{rw}-qd{qd}",
                f"4 KiB random {word}, QD {qd}{how}",
                f"--rw={rw} --bs=4k {_batched(qd)}",
                "random",
            )
        yield Case(
            f"{rw}-qd32-single",
            f"4 KiB random {word}, QD 32, one by one",
            f"--rw={rw} --bs=4k --iodepth=32",
            "random",
        )
    for rw in ("read", "write"):
        yield Case(
            f"seq{rw}-128k",
            f"128 KiB sequential {rw}, QD 8",
            f"--rw={rw} --bs=128k --iodepth=8",
            "sequential",
        )


CASES = list(_cases())


@dataclass(frozen=True)
class Promise:
    """IOPS of one subject against another's, in one case."""

    case: str
    subject: str
    against: str
    at_least: float


PROMISES = [
    Promise("randread-qd32", "rflash", "nvme-tcp", 1.7),
    Promise("randwrite-qd32", "rflash", "nvme-tcp", 1.7),
]
