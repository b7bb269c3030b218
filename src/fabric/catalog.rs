use super::*;
use std::sync::Arc;
use std::time::Duration;
pub(crate) struct Catalog;
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) variables: Vec<String>,
}
pub(crate) struct Snapshot {
    pub(crate) patterns: Vec<Entry>,
    pub(crate) strategies: Vec<Strategy>,
}
impl Catalog {
    pub(crate) fn new(_c: Arc<Client>, _ttl: Duration) -> Catalog {
        Catalog
    }
    pub(crate) fn snapshot(&self, _w: &Arc<dyn Wait>) -> Result<Arc<Snapshot>, Error> {
        todo!()
    }
    pub(crate) fn names(&self, _w: &Arc<dyn Wait>) -> Result<Arc<Vec<String>>, Error> {
        todo!()
    }
    pub(crate) fn poll(&self) -> Result<bool, Error> {
        todo!()
    }
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_secs(300)
    }
    pub(crate) fn on_change(&self, _f: Box<dyn Fn() + Send + Sync>) {}
}
