// SPDX-License-Identifier: GPL-2.0-only
//! A flash device in virtual time.
