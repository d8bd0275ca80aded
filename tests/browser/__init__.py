"""Pages in a real browser, which the tests of this package share: it starts once a worker."""
