# SPDX-License-Identifier: Apache-2.0
"""How long tests wait for an event that must come."""

# The limit only ends tests that hang. It is far longer than any event takes on a slow and busy machine.
PATIENCE_S = 120
