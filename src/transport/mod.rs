//! Bytes in, bytes out: over stdin and stdout (`stdio`), or HTTP (`http`). What a message means is decided in `features`,
//! how a call runs in `calls`.

pub(crate) mod http;
pub(crate) mod stdio;
