//! A client within this process: `--call` asks the server as the user who started it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use crate::access::Pass;
use crate::protocol::{Answer, Inbound, Session};
use crate::sync::lock;
use crate::tools::Peer;

use super::{Action, Server};

/// Who hears of a call before its answer.
pub(crate) trait Audience: Send + Sync {
    /// Gets a notification.
    fn hear(&self, notification: &Value);

    /// Asked several times a second: should the call stop?
    fn stopped(&self) -> bool {
        false
    }

    /// As [`Peer::idle`].
    fn idle(&self, _silence: Duration) {}
}

impl Server {
    /// Sends one request and returns its answer; `null` for a message without one. Blocks until then.
    pub(crate) fn ask(
        &self,
        session: &Arc<Session>,
        request: &str,
        audience: Arc<dyn Audience>,
    ) -> Value {
        let pass = Arc::new(Pass::local());
        let account = self.account(&pass.identity);
        let inbound = Inbound::read(request.as_bytes(), false);
        let answer = match self.receive(session, inbound, None, &account) {
            Action::Answer(answer) => Some(answer),
            Action::Call(call) => {
                let peer = Arc::new(LocalPeer {
                    audience,
                    answer: Mutex::default(),
                });
                call.serve(self, self.caller(&pass, peer.clone()), |work| {
                    work();
                    Ok(())
                });
                lock(&peer.answer).take()
            }
            _ => None,
        };
        let body = answer.map(|answer| answer.body.into_bytes());
        body.and_then(|body| serde_json::from_slice(&body).ok())
            .unwrap_or_default()
    }
}

struct LocalPeer {
    audience: Arc<dyn Audience>,
    answer: Mutex<Option<Answer>>,
}

impl Peer for LocalPeer {
    fn notify(&self, message: &[u8]) {
        if let Ok(notification) = serde_json::from_slice(message) {
            self.audience.hear(&notification);
        }
    }

    fn answer(&self, answer: Answer) {
        *lock(&self.answer) = Some(answer);
    }

    fn stopped(&self) -> bool {
        self.audience.stopped()
    }

    fn idle(&self, silence: Duration) {
        self.audience.idle(silence);
    }
}
