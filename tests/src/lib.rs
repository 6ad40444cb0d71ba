//! Support for end-to-end tests of the real binaries.
