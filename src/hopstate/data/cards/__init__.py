"""Data cards: what a record holds and what looks wrong about it (`card`), with plots beside it (`plots`)."""
