/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The states of a controller and what moves it between them: a table and
 * nothing else. Who writes the state, and under which lock, is controller.c's.
 */
#ifndef _RFLASH_STATE_H
#define _RFLASH_STATE_H

#include "uapi/rflash.h"

/**
 * enum rflash_event - what can happen to a controller
 * @RFLASH_EV_CONNECT: the first connect begins
 * @RFLASH_EV_CONNECTED: all queues are connected and can serve
 * @RFLASH_EV_FAULT: a connection broke, timed out or lost the protocol
 * @RFLASH_EV_TORN_DOWN: after a fault, all connections are closed
 * @RFLASH_EV_GIVE_UP: the first connect failed, or ctrl_loss_tmo is over
 * @RFLASH_EV_DELETE: somebody wants it gone
 * @RFLASH_EV_DELETED: all its devices and connections are gone
 * @__RFLASH_EVENTS: number of events
 */
enum rflash_event {
	RFLASH_EV_CONNECT,
	RFLASH_EV_CONNECTED,
	RFLASH_EV_FAULT,
	RFLASH_EV_TORN_DOWN,
	RFLASH_EV_GIVE_UP,
	RFLASH_EV_DELETE,
	RFLASH_EV_DELETED,
	__RFLASH_EVENTS,
};

int rflash_state_next(enum rflash_ctrl_state from, enum rflash_event ev);
const char *rflash_state_name(enum rflash_ctrl_state state);
const char *rflash_event_name(enum rflash_event ev);

#endif /* _RFLASH_STATE_H */
