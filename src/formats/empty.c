/* SPDX-License-Identifier: Apache-2.0 */
typedef int room_is_empty; /* replaced by the first real file */
