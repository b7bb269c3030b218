//! What the protocol asks of a transport while a call runs or a subscription is kept.

/// Where a call's notifications go, and whether anybody still waits for it. Given by the transport.
pub(crate) trait Outlet: Send + Sync {
    /// Sends one notification of the call: a whole message, one line. What cannot be sent is dropped: the next look at
    /// [`Outlet::stopped`] tells why.
    fn notify(&self, message: &[u8]);

    /// Has the caller cancelled, or gone away in a way that means the same?
    fn stopped(&self) -> bool;

    /// Called about every 100 ms while Fabric is silent, for signs of life on the line.
    fn idle(&self) {}
}
