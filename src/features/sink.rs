//! What a feature asks of a transport while a call runs or a subscription is kept.

/// Where the notifications of a call go, and whether its caller still waits. Given by the transport.
pub(crate) trait Sink: Send + Sync {
    /// Sends one notification: a whole message, one line. What cannot be sent is dropped: [`Sink::stopped`] tells why.
    fn notify(&self, message: &[u8]);

    /// Has the caller cancelled, or gone away in a way that means the same?
    fn stopped(&self) -> bool;

    /// Called about every 100 ms while Fabric is silent, for signs of life on the connection.
    fn idle(&self) {}
}
