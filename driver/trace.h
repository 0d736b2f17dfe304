/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints, under events/rflash/ in tracefs. They take plain values, so that
 * this header needs none of the driver's structures; "ctrl" is the controller's
 * number (rflash list shows it), "qid" 0 the admin queue.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM rflash

#if !defined(_RFLASH_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _RFLASH_TRACE_H

#include <linux/string.h>
#include <linux/tracepoint.h>

#include "uapi/rflash.h"

/* The longest reason kept in a fault event, with its terminating zero. */
#define RFLASH_TRACE_REASON_LEN		96

TRACE_DEFINE_ENUM(RFLASH_CTRL_NEW);
TRACE_DEFINE_ENUM(RFLASH_CTRL_CONNECTING);
TRACE_DEFINE_ENUM(RFLASH_CTRL_LIVE);
TRACE_DEFINE_ENUM(RFLASH_CTRL_RECOVERING);
TRACE_DEFINE_ENUM(RFLASH_CTRL_RECONNECTING);
TRACE_DEFINE_ENUM(RFLASH_CTRL_DELETING);
TRACE_DEFINE_ENUM(RFLASH_CTRL_DEAD);

#define rflash_show_state(state)				\
	__print_symbolic(state,					\
		{ RFLASH_CTRL_NEW,		"new" },	\
		{ RFLASH_CTRL_CONNECTING,	"connecting" },	\
		{ RFLASH_CTRL_LIVE,		"live" },	\
		{ RFLASH_CTRL_RECOVERING,	"recovering" },	\
		{ RFLASH_CTRL_RECONNECTING,	"reconnecting" }, \
		{ RFLASH_CTRL_DELETING,		"deleting" },	\
		{ RFLASH_CTRL_DEAD,		"dead" })

/* A command is about to be handed to the socket. @len: bytes of data. */
TRACE_EVENT(rflash_submit,
	    TP_PROTO(u32 ctrl, u16 qid, u16 cid, u8 opcode, u32 nsid, u64 slba,
		     u32 len),
	    TP_ARGS(ctrl, qid, cid, opcode, nsid, slba, len),
	    TP_STRUCT__entry(__field(u64, slba)
			     __field(u32, ctrl)
			     __field(u32, nsid)
			     __field(u32, len)
			     __field(u16, qid)
			     __field(u16, cid)
			     __field(u8, opcode)
	    ),
	    TP_fast_assign(__entry->slba = slba;
			   __entry->ctrl = ctrl;
			   __entry->nsid = nsid;
			   __entry->len = len;
			   __entry->qid = qid;
			   __entry->cid = cid;
			   __entry->opcode = opcode;
	    ),
	    TP_printk("ctrl=%u qid=%u cid=0x%04x opcode=0x%02x nsid=%u slba=%llu len=%u",
		      __entry->ctrl, __entry->qid, __entry->cid,
		      __entry->opcode, __entry->nsid, __entry->slba,
		      __entry->len)
);

/* A completion was accepted. @status as NVME_SC_*, 0 is success. */
TRACE_EVENT(rflash_complete,
	    TP_PROTO(u32 ctrl, u16 qid, u16 cid, u16 status, u64 result),
	    TP_ARGS(ctrl, qid, cid, status, result),
	    TP_STRUCT__entry(__field(u64, result)
			     __field(u32, ctrl)
			     __field(u16, qid)
			     __field(u16, cid)
			     __field(u16, status)
	    ),
	    TP_fast_assign(__entry->result = result;
			   __entry->ctrl = ctrl;
			   __entry->qid = qid;
			   __entry->cid = cid;
			   __entry->status = status;
	    ),
	    TP_printk("ctrl=%u qid=%u cid=0x%04x status=0x%x result=0x%llx",
		      __entry->ctrl, __entry->qid, __entry->cid,
		      __entry->status, __entry->result)
);

/* The controller's state changed. */
TRACE_EVENT(rflash_state,
	    TP_PROTO(u32 ctrl, u32 from, u32 to),
	    TP_ARGS(ctrl, from, to),
	    TP_STRUCT__entry(__field(u32, ctrl)
			     __field(u32, from)
			     __field(u32, to)
	    ),
	    TP_fast_assign(__entry->ctrl = ctrl;
			   __entry->from = from;
			   __entry->to = to;
	    ),
	    TP_printk("ctrl=%u %s -> %s", __entry->ctrl,
		      rflash_show_state(__entry->from),
		      rflash_show_state(__entry->to))
);

/* A connection is given up and recovery begins. */
TRACE_EVENT(rflash_fault,
	    TP_PROTO(u32 ctrl, const char *reason),
	    TP_ARGS(ctrl, reason),
	    TP_STRUCT__entry(__field(u32, ctrl)
			     __array(char, reason, RFLASH_TRACE_REASON_LEN)
	    ),
	    TP_fast_assign(__entry->ctrl = ctrl;
			   strscpy(__entry->reason, reason,
				   RFLASH_TRACE_REASON_LEN);
	    ),
	    TP_printk("ctrl=%u %s", __entry->ctrl, __entry->reason)
);

/* The socket took @bytes of @requests requests in one call. */
TRACE_EVENT(rflash_send,
	    TP_PROTO(u32 ctrl, u16 qid, u32 bytes, u32 requests),
	    TP_ARGS(ctrl, qid, bytes, requests),
	    TP_STRUCT__entry(__field(u32, ctrl)
			     __field(u32, bytes)
			     __field(u32, requests)
			     __field(u16, qid)
	    ),
	    TP_fast_assign(__entry->ctrl = ctrl;
			   __entry->bytes = bytes;
			   __entry->requests = requests;
			   __entry->qid = qid;
	    ),
	    TP_printk("ctrl=%u qid=%u bytes=%u requests=%u", __entry->ctrl,
		      __entry->qid, __entry->bytes, __entry->requests)
);

/* One run of the receive path consumed @bytes. */
TRACE_EVENT(rflash_recv,
	    TP_PROTO(u32 ctrl, u16 qid, u32 bytes),
	    TP_ARGS(ctrl, qid, bytes),
	    TP_STRUCT__entry(__field(u32, ctrl)
			     __field(u32, bytes)
			     __field(u16, qid)
	    ),
	    TP_fast_assign(__entry->ctrl = ctrl;
			   __entry->bytes = bytes;
			   __entry->qid = qid;
	    ),
	    TP_printk("ctrl=%u qid=%u bytes=%u", __entry->ctrl, __entry->qid,
		      __entry->bytes)
);

#endif /* _RFLASH_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
