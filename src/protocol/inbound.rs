//! One incoming line or body, decoded as far as a transport needs.

use std::collections::HashSet;

use super::jsonrpc::{self, Id, Incoming, Invalid, Message, RequestMessage};
use super::meta::Meta;
use super::node::Node;

/// The error for a request whose id is in use.
pub(crate) const ID_IN_USE: &str =
    "This id is in use by a request that has no answer yet: give every request an id of its own.";

/// A decoded line or body, and its era.
pub(crate) struct Inbound<'a> {
    /// The decoded messages; `Err` if there is no valid one.
    pub(crate) incoming: Result<Incoming<'a>, Invalid>,
    /// Is it of the stateless era?
    pub(crate) modern: bool,
    /// Does it open a legacy session?
    pub(crate) initialize: bool,
}

impl<'a> Inbound<'a> {
    /// Decodes one line or body. `modern_header`: over HTTP, `MCP-Protocol-Version` is 2026-07-28 or later.
    pub(crate) fn read(bytes: &'a [u8], modern_header: bool) -> Inbound<'a> {
        let incoming = jsonrpc::read(bytes);
        let (modern, initialize) = match &incoming {
            Ok(Incoming::One(Message::Request(request))) => {
                let modern = is_modern(request, modern_header);
                (modern, !modern && request.method == "initialize")
            }
            _ => (modern_header, false),
        };
        Inbound {
            incoming,
            modern,
            initialize,
        }
    }

    /// Refuses every request whose id is in use on its connection or earlier in its batch. For transports whose
    /// requests share ids: not for modern HTTP.
    pub(crate) fn refuse_ids(&mut self, in_use: impl Fn(&Id) -> bool) {
        let refusal = |id: &Id| Invalid {
            id: Some(id.clone()),
            code: jsonrpc::INVALID_REQUEST,
            reason: ID_IN_USE,
        };
        match &mut self.incoming {
            Ok(Incoming::One(Message::Request(RequestMessage { id, .. }))) if in_use(id) => {
                self.incoming = Err(refusal(id))
            }
            Ok(Incoming::Batch(items)) => {
                let mut seen = HashSet::new();
                for item in items {
                    if let Ok(Message::Request(RequestMessage { id, .. })) = item
                        && (in_use(id) || !seen.insert(id.clone()))
                    {
                        *item = Err(refusal(id));
                    }
                }
            }
            _ => {}
        }
    }

    /// The id of a single request.
    pub(crate) fn id(&self) -> Option<&Id> {
        match &self.incoming {
            Ok(Incoming::One(Message::Request(request))) => Some(&request.id),
            _ => None,
        }
    }

    /// The ids of all its requests that are readable.
    pub(crate) fn ids(&self) -> Vec<Id> {
        let id = |message: &Message<'_>| match message {
            Message::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        match &self.incoming {
            Ok(Incoming::One(message)) => id(message).into_iter().collect(),
            Ok(Incoming::Batch(items)) => items.iter().flatten().filter_map(id).collect(),
            Err(invalid) => invalid.id.iter().cloned().collect(),
        }
    }

    /// Does it need an answer?
    pub(crate) fn is_request(&self) -> bool {
        match &self.incoming {
            Ok(Incoming::One(message)) => matches!(message, Message::Request(_)),
            Ok(Incoming::Batch(items)) => !items
                .iter()
                .all(|m| matches!(m, Ok(Message::Notification { .. } | Message::Response))),
            Err(_) => true,
        }
    }
}

/// The era of a request, from its envelope, its method or the HTTP header.
pub(crate) fn is_modern(request: &RequestMessage<'_>, modern_header: bool) -> bool {
    Meta::read(request.params.as_ref()).is_ok_and(|meta| meta.is_modern())
        || request.method == "server/discover"
        || (modern_header && request.method != "initialize")
}

/// The id in a `notifications/cancelled`. Anything else or malformed is ignored, as the specification asks.
pub(crate) fn cancelled(method: &str, params: Option<&Node<'_>>) -> Option<Id> {
    if method != "notifications/cancelled" {
        return None;
    }
    Id::read(params?.get("requestId")?)
}
