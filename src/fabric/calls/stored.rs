//! Contexts and sessions: what Fabric keeps under names of its users' choice.

use std::sync::Arc;

use crate::fabric::{Client, Error, Names, Wait};

/// What is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Texts to put before a pattern.
    Contexts,
    /// Conversations, which a run goes on with, or begins where there is none of that name.
    Sessions,
}

impl Stored {
    /// The word for several of them.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Stored::Contexts => "contexts",
            Stored::Sessions => "sessions",
        }
    }
}

impl Client {
    /// `GET /contexts/names` or `GET /sessions/names`. A 500 means that there is no folder of them: then `None`.
    pub(crate) fn stored(&self, what: Stored, wait: &Arc<dyn Wait>) -> Result<Option<Names>, Error> {
        let path = format!("/{}/names", what.plural());
        match self.get(&path, self.request_limits(), wait) {
            Err(Error { status: Some(500), .. }) => Ok(None),
            body => Names::read(body?).map(Some).ok_or_else(|| self.unexpected("GET", &path)),
        }
    }
}
