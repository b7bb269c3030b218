//! What features need from a transport during a call or subscription.

/// Where a call's notifications go, and whether its caller still waits. Implemented by transports.
pub(crate) trait Sink: Send + Sync {
    /// Sends one notification: a whole message, one line. Dropped if it cannot be sent: [`Sink::stopped`] tells.
    fn notify(&self, message: &[u8]);

    /// Has the caller cancelled, or disconnected where that means the same?
    fn stopped(&self) -> bool;

    /// Called about every 100 ms while Fabric is silent, to keep the connection alive.
    fn idle(&self) {}
}
