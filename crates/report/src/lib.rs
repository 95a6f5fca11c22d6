//! Self-contained HTML pictures.
