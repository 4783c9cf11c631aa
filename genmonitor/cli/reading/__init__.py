# SPDX-License-Identifier: Apache-2.0
"""What commands read: images, embeddings, texts, their prompts, and the encoders for them."""
