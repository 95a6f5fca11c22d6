//! The cache under virtual time.
