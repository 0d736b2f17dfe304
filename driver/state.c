// SPDX-License-Identifier: GPL-2.0
/*
 * The controller's state table.
 */
#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/types.h>

#include "state.h"

/*
 * Next state by state and event, one more than the state so that 0, which is
 * what is not listed, means refused.
 */
#define TO(state) (RFLASH_CTRL_##state + 1)

static const u8 rflash_state_table[__RFLASH_CTRL_STATES][__RFLASH_EVENTS] = {
	[RFLASH_CTRL_NEW] = {
		[RFLASH_EV_CONNECT]	= TO(CONNECTING),
		[RFLASH_EV_DELETE]	= TO(DELETING),
	},
	[RFLASH_CTRL_CONNECTING] = {
		[RFLASH_EV_CONNECTED]	= TO(LIVE),
		[RFLASH_EV_GIVE_UP]	= TO(DELETING),
		[RFLASH_EV_DELETE]	= TO(DELETING),
	},
	[RFLASH_CTRL_LIVE] = {
		[RFLASH_EV_FAULT]	= TO(RECOVERING),
		[RFLASH_EV_DELETE]	= TO(DELETING),
	},
	[RFLASH_CTRL_RECOVERING] = {
		[RFLASH_EV_TORN_DOWN]	= TO(RECONNECTING),
		[RFLASH_EV_GIVE_UP]	= TO(DELETING),
		[RFLASH_EV_DELETE]	= TO(DELETING),
	},
	[RFLASH_CTRL_RECONNECTING] = {
		[RFLASH_EV_CONNECTED]	= TO(LIVE),
		[RFLASH_EV_GIVE_UP]	= TO(DELETING),
		[RFLASH_EV_DELETE]	= TO(DELETING),
	},
	[RFLASH_CTRL_DELETING] = {
		[RFLASH_EV_DELETED]	= TO(DEAD),
	},
};

#undef TO

static const char * const rflash_state_names[__RFLASH_CTRL_STATES] = {
	[RFLASH_CTRL_NEW]		= "new",
	[RFLASH_CTRL_CONNECTING]	= "connecting",
	[RFLASH_CTRL_LIVE]		= "live",
	[RFLASH_CTRL_RECOVERING]	= "recovering",
	[RFLASH_CTRL_RECONNECTING]	= "reconnecting",
	[RFLASH_CTRL_DELETING]		= "deleting",
	[RFLASH_CTRL_DEAD]		= "dead",
};

static const char * const rflash_event_names[__RFLASH_EVENTS] = {
	[RFLASH_EV_CONNECT]	= "connect",
	[RFLASH_EV_CONNECTED]	= "connected",
	[RFLASH_EV_FAULT]	= "fault",
	[RFLASH_EV_TORN_DOWN]	= "torn down",
	[RFLASH_EV_GIVE_UP]	= "give up",
	[RFLASH_EV_DELETE]	= "delete",
	[RFLASH_EV_DELETED]	= "deleted",
};

/**
 * rflash_state_next - the state an event leads to
 * @from: current state
 * @ev: what happened
 *
 * Return: the next state, or -EBUSY if the event is refused in @from.
 */
int rflash_state_next(enum rflash_ctrl_state from, enum rflash_event ev)
{
	u8 to;

	if ((unsigned int)from >= __RFLASH_CTRL_STATES ||
	    (unsigned int)ev >= __RFLASH_EVENTS)
		return -EBUSY;
	to = rflash_state_table[from][ev];
	return to ? to - 1 : -EBUSY;
}

/**
 * rflash_state_name - the name of a state, as the control interface's users see it
 * @state: the state
 *
 * Return: a constant string, "unknown" for what is no state.
 */
const char *rflash_state_name(enum rflash_ctrl_state state)
{
	if ((unsigned int)state >= __RFLASH_CTRL_STATES)
		return "unknown";
	return rflash_state_names[state];
}

/**
 * rflash_event_name - the name of an event, for messages
 * @ev: the event
 *
 * Return: a constant string, "unknown" for what is no event.
 */
const char *rflash_event_name(enum rflash_event ev)
{
	if ((unsigned int)ev >= __RFLASH_EVENTS)
		return "unknown";
	return rflash_event_names[ev];
}
