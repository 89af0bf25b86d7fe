//! A limit for what is copied from a document.

use std::io;

use serde::Serialize;

/// How many bytes of JSON may still be copied.
pub(crate) struct Budget(pub(crate) usize);

/// More would be copied than the budget allows.
#[derive(Debug)]
pub(crate) struct TooLong;

impl Budget {
    pub(crate) fn take(&mut self, bytes: usize) -> Result<(), TooLong> {
        self.0 = self.0.checked_sub(bytes).ok_or(TooLong)?;
        Ok(())
    }

    /// Takes the length of a value, which is not written any further than that.
    pub(crate) fn take_json(&mut self, value: &impl Serialize) -> Result<(), TooLong> {
        serde_json::to_writer(self, value).map_err(|_| TooLong)
    }
}

impl io::Write for &mut Budget {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.take(bytes.len()).map_err(|TooLong| io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
