// SPDX-License-Identifier: GPL-2.0-only
//! Tenants, tokens, cost model, admission, scheduler: no I/O, time is an argument.
