"""Generated things: contracts become CRDs, the chart's copies of them, and the reference pages."""
