// SPDX-License-Identifier: GPL-2.0
/*
 * The controller's state table, every state and every event.
 */
#include <kunit/test.h>

#include "../state.h"

struct rflash_transition {
	enum rflash_ctrl_state from;
	enum rflash_event ev;
	int to;
};

#define T(from, ev, to) \
	{ RFLASH_CTRL_##from, RFLASH_EV_##ev, RFLASH_CTRL_##to }
#define NO(from, ev) \
	{ RFLASH_CTRL_##from, RFLASH_EV_##ev, -EBUSY }

/* Written out, so that a change of the table has to be made twice. */
static const struct rflash_transition rflash_transitions[] = {
	T(NEW, CONNECT, CONNECTING),
	NO(NEW, CONNECTED),
	NO(NEW, FAULT),
	NO(NEW, TORN_DOWN),
	NO(NEW, GIVE_UP),
	T(NEW, DELETE, DELETING),
	NO(NEW, DELETED),

	NO(CONNECTING, CONNECT),
	T(CONNECTING, CONNECTED, LIVE),
	NO(CONNECTING, FAULT),
	NO(CONNECTING, TORN_DOWN),
	T(CONNECTING, GIVE_UP, DELETING),
	T(CONNECTING, DELETE, DELETING),
	NO(CONNECTING, DELETED),

	NO(LIVE, CONNECT),
	NO(LIVE, CONNECTED),
	T(LIVE, FAULT, RECOVERING),
	NO(LIVE, TORN_DOWN),
	NO(LIVE, GIVE_UP),
	T(LIVE, DELETE, DELETING),
	NO(LIVE, DELETED),

	NO(RECOVERING, CONNECT),
	NO(RECOVERING, CONNECTED),
	NO(RECOVERING, FAULT),
	T(RECOVERING, TORN_DOWN, RECONNECTING),
	T(RECOVERING, GIVE_UP, DELETING),
	T(RECOVERING, DELETE, DELETING),
	NO(RECOVERING, DELETED),

	NO(RECONNECTING, CONNECT),
	T(RECONNECTING, CONNECTED, LIVE),
	NO(RECONNECTING, FAULT),
	NO(RECONNECTING, TORN_DOWN),
	T(RECONNECTING, GIVE_UP, DELETING),
	T(RECONNECTING, DELETE, DELETING),
	NO(RECONNECTING, DELETED),

	NO(DELETING, CONNECT),
	NO(DELETING, CONNECTED),
	NO(DELETING, FAULT),
	NO(DELETING, TORN_DOWN),
	NO(DELETING, GIVE_UP),
	NO(DELETING, DELETE),
	T(DELETING, DELETED, DEAD),

	NO(DEAD, CONNECT),
	NO(DEAD, CONNECTED),
	NO(DEAD, FAULT),
	NO(DEAD, TORN_DOWN),
	NO(DEAD, GIVE_UP),
	NO(DEAD, DELETE),
	NO(DEAD, DELETED),
};

static void rflash_transition_desc(const struct rflash_transition *t, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "%s: %s",
		 rflash_state_name(t->from), rflash_event_name(t->ev));
}

KUNIT_ARRAY_PARAM(rflash_transition, rflash_transitions, rflash_transition_desc);

static void state_transition(struct kunit *test)
{
	const struct rflash_transition *t = test->param_value;

	KUNIT_EXPECT_EQ(test, rflash_state_next(t->from, t->ev), t->to);
}

/* The list above names each pair once. */
static void state_all_pairs(struct kunit *test)
{
	bool seen[__RFLASH_CTRL_STATES][__RFLASH_EVENTS] = { };
	int i;

	KUNIT_ASSERT_EQ(test, ARRAY_SIZE(rflash_transitions),
			__RFLASH_CTRL_STATES * __RFLASH_EVENTS);
	for (i = 0; i < ARRAY_SIZE(rflash_transitions); i++) {
		const struct rflash_transition *t = &rflash_transitions[i];

		KUNIT_EXPECT_FALSE(test, seen[t->from][t->ev]);
		seen[t->from][t->ev] = true;
	}
}

static void state_out_of_range(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, -EBUSY,
			rflash_state_next(__RFLASH_CTRL_STATES, RFLASH_EV_DELETE));
	KUNIT_EXPECT_EQ(test, -EBUSY,
			rflash_state_next(RFLASH_CTRL_LIVE, __RFLASH_EVENTS));
	KUNIT_EXPECT_EQ(test, -EBUSY, rflash_state_next(-1, -1));
	KUNIT_EXPECT_STREQ(test, rflash_state_name(__RFLASH_CTRL_STATES),
			   "unknown");
	KUNIT_EXPECT_STREQ(test, rflash_event_name(-1), "unknown");
}

/* No state is a trap: from each one the controller can be got rid of. */
static void state_dead_is_reachable(struct kunit *test)
{
	static const enum rflash_event way[] = {
		RFLASH_EV_DELETE, RFLASH_EV_DELETED,
	};
	int from, i, state, next;

	for (from = 0; from < RFLASH_CTRL_DEAD; from++) {
		for (state = from, i = 0; i < ARRAY_SIZE(way); i++) {
			next = rflash_state_next(state, way[i]);
			if (next >= 0)
				state = next;
		}
		KUNIT_EXPECT_EQ_MSG(test, state, RFLASH_CTRL_DEAD, "from %s",
				    rflash_state_name(from));
	}
}

static void state_names(struct kunit *test)
{
	int i, j;

	for (i = 0; i < __RFLASH_CTRL_STATES; i++) {
		KUNIT_ASSERT_NOT_NULL(test, rflash_state_name(i));
		for (j = 0; j < i; j++)
			KUNIT_EXPECT_STRNEQ(test, rflash_state_name(i),
					    rflash_state_name(j));
	}
	for (i = 0; i < __RFLASH_EVENTS; i++) {
		KUNIT_ASSERT_NOT_NULL(test, rflash_event_name(i));
		for (j = 0; j < i; j++)
			KUNIT_EXPECT_STRNEQ(test, rflash_event_name(i),
					    rflash_event_name(j));
	}
}

static struct kunit_case rflash_state_cases[] = {
	KUNIT_CASE_PARAM(state_transition, rflash_transition_gen_params),
	KUNIT_CASE(state_all_pairs),
	KUNIT_CASE(state_out_of_range),
	KUNIT_CASE(state_dead_is_reachable),
	KUNIT_CASE(state_names),
	{ }
};

static struct kunit_suite rflash_state_suite = {
	.name = "rflash_state",
	.test_cases = rflash_state_cases,
};

kunit_test_suite(rflash_state_suite);

MODULE_DESCRIPTION("KUnit tests of rflash's state table");
MODULE_LICENSE("GPL");
