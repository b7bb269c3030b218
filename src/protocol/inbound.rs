//! One incoming line or body, decoded as far as a transport needs.

use std::collections::HashSet;

use super::jsonrpc::{self, Id, Invalid, Message, RequestMessage};
use super::meta::{Meta, VERSION};

/// The error for a request whose id is in use.
pub(crate) const ID_IN_USE: &str =
    "This id is in use by a request that has no answer yet: give every request an id of its own.";

/// A decoded line or body, and its era.
pub(crate) struct Inbound<'a> {
    /// One message, or those of an array, in order; never empty.
    pub(crate) messages: Vec<Result<Message<'a>, Invalid>>,
    /// Is it an array?
    pub(crate) is_batch: bool,
    /// Is it of the stateless era?
    pub(crate) modern: bool,
    /// Does it open a legacy session?
    pub(crate) initialize: bool,
}

impl<'a> Inbound<'a> {
    /// Decodes one line or body. `modern_header`: over HTTP, `MCP-Protocol-Version` is 2026-07-28 or later.
    pub(crate) fn read(bytes: &'a [u8], modern_header: bool) -> Inbound<'a> {
        let (messages, is_batch) = jsonrpc::read(bytes);
        let mut inbound = Inbound {
            messages,
            is_batch,
            modern: modern_header,
            initialize: false,
        };
        if let Some(request) = inbound.request() {
            let modern = is_modern(request, modern_header);
            inbound.initialize = !modern && request.method == "initialize";
            inbound.modern = modern;
        }
        inbound
    }

    /// Refuses every request whose id is in use on its connection or earlier in its batch. For transports whose
    /// requests share ids: not for modern HTTP.
    pub(crate) fn refuse_ids(&mut self, in_use: impl Fn(&Id) -> bool) {
        let mut seen = HashSet::new();
        for message in &mut self.messages {
            if let Ok(Message::Request(RequestMessage { id, .. })) = message
                && (in_use(id) || !seen.insert(id.clone()))
            {
                *message = Err((Some(id.clone()), jsonrpc::INVALID_REQUEST, ID_IN_USE));
            }
        }
    }

    /// A single request.
    pub(crate) fn request(&self) -> Option<&RequestMessage<'a>> {
        match &self.messages[..] {
            [Ok(Message::Request(request))] if !self.is_batch => Some(request),
            _ => None,
        }
    }

    /// The id of a single request.
    pub(crate) fn id(&self) -> Option<&Id> {
        self.request().map(|request| &request.id)
    }

    /// Is it a single message that is not valid?
    pub(crate) fn is_invalid(&self) -> bool {
        !self.is_batch && self.messages.iter().any(Result::is_err)
    }

    /// The ids that its responses answer; `null` for a response without an id.
    pub(crate) fn answered(&self) -> Vec<&Id> {
        let answered = self.messages.iter().filter_map(|message| match message {
            Ok(Message::Response(id)) => Some(id.as_ref().unwrap_or(&Id::Null)),
            _ => None,
        });
        answered.collect()
    }
}

/// The id of a message that needs an answer; `null` if it is not readable.
pub(crate) fn id_to_answer<'m>(message: &'m Result<Message<'_>, Invalid>) -> Option<&'m Id> {
    match message {
        Ok(Message::Request(request)) => Some(&request.id),
        Ok(_) => None,
        Err((id, ..)) => Some(id.as_ref().unwrap_or(&Id::Null)),
    }
}

/// The era of a request, from its envelope, its method or the HTTP header.
pub(crate) fn is_modern(request: &RequestMessage<'_>, modern_header: bool) -> bool {
    Meta::read(request.params.as_ref()).is_ok_and(|meta| meta.get(VERSION).is_some())
        || request.method == "server/discover"
        || (modern_header && request.method != "initialize")
}

/// The id in a `notifications/cancelled`. Anything else or malformed is ignored, as the specification asks.
pub(crate) fn cancelled(message: &Result<Message<'_>, Invalid>) -> Option<Id> {
    match message {
        Ok(Message::Notification { method, params }) if method == "notifications/cancelled" => {
            Id::read(params.as_ref()?.get("requestId")?)
        }
        _ => None,
    }
}
